"""Made-up time series: seasons, a trend, a level, and noise."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

PERIODS: Final = (6, 7, 12, 24)
"""Two shifts, a week, a year of months, a day of hours."""


def seasonal_series(random: np.random.Generator, rows: int, length: int) -> NDArray[np.float32]:
    """Series that repeat themselves, more or less."""
    time = np.arange(length)
    period = random.choice(PERIODS, (rows, 1))
    phase = random.uniform(0, 2 * np.pi, (rows, 1))
    seasons = np.zeros((rows, length))
    for harmonic in (1, 2):
        size = random.uniform(0, 1, (rows, 1)) / harmonic
        seasons += size * np.sin(harmonic * (2 * np.pi * time / period + phase))
    trend = random.normal(0, 0.005, (rows, 1)) * time
    noise = random.normal(0, 1, (rows, length)) * random.uniform(0, 0.15, (rows, 1))
    level, unit = random.normal(0, 10, (rows, 1)), random.lognormal(0, 1, (rows, 1))
    return ((seasons + trend + noise + level) * unit).astype(np.float32)
