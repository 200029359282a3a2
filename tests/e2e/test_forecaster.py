"""The forecaster of examples/: made as its page says, served from an interpreter of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve

EXAMPLE = Path(__file__).parents[2] / "examples" / "forecaster"


def seasonal(rows: int, length: int) -> Any:
    """Weekly and daily patterns with noise, which the training has not seen."""
    random, time = np.random.default_rng(7), np.arange(length)
    period = np.where(np.arange(rows)[:, None] % 2, 7, 24)
    waves = np.sin(2 * np.pi * time / period) + 0.4 * np.cos(4 * np.pi * time / period)
    return 50 + 8 * waves + random.normal(0, 0.5, (rows, length))


@pytest.mark.timeout(300)  # it fetches numpy and trains
def test_forecasts_of_seasonal_series_beat_the_last_value(serve: Serve, models_dir: Path) -> None:
    subprocess.run([sys.executable, EXAMPLE / "make.py", models_dir / "forecaster"], check=True)
    daemon = serve()
    series = seasonal(20, 128 + 32)
    context, future = series[:, :128], series[:, 128:]
    rows = np.where(np.arange(128) % 40 == 5, np.nan, context).tolist()
    given = tensor("context", context.shape, rows)

    reply = daemon.infer("forecaster", given)

    outputs = reply.outputs()
    forecast = np.reshape(outputs["forecast"], future.shape)
    quantiles = np.reshape(outputs["quantiles"], (*future.shape, 9))
    error = np.abs(forecast - future).mean(axis=1)
    naive = np.abs(context[:, -1:] - future).mean(axis=1)
    assert (error < naive / 2).all()
    inside = (quantiles[..., 0] <= future) & (future <= quantiles[..., 8])
    assert inside.mean() > 0.5
    assert (np.diff(quantiles, axis=2) >= 0).all()
    (child,) = (pid for pid in daemon.tree() if processes.parent(pid) in daemon.workers())
    command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0].decode()
    assert command == str(models_dir.resolve() / "forecaster" / "venv" / "bin" / "python")

    short = daemon.infer("forecaster", tensor("context", [1, 3], [1, 2, 3]))
    assert len(short.outputs()["forecast"]) == 32
    nothing = daemon.infer("forecaster", tensor("context", [1, 2], [None, None]))
    assert (nothing.status, nothing.json()["code"]) == (400, "invalid_input")
