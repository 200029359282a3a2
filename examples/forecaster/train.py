"""Train the forecaster on made-up series: `python train.py FILE`. Takes some seconds."""

import sys
from pathlib import Path
from typing import Final

import numpy as np
from network import CONTEXT, HORIZON, PATCHES, QUANTILES, Floats, Weights, forward, fresh, normalise
from series import seasonal_series

_STEPS: Final = 600
_ROWS: Final = 128
_RATE: Final = 2e-3
_MOMENTUM, _SQUARES, _TINY = 0.9, 0.99, 1e-8  # of the Adam optimiser
_SHORTEST: Final = CONTEXT // 4  # of the contexts that it learns from


def train(seed: int = 0) -> Weights:
    """Weights that make the pinball loss of all nine quantiles small."""
    random = np.random.default_rng(seed)
    weights = fresh(random)
    means = {name: np.zeros_like(weight) for name, weight in weights.items()}
    squares = {name: np.zeros_like(weight) for name, weight in weights.items()}
    for step in range(1, _STEPS + 1):
        context, future = _examples(random)
        rate = _RATE * (1 - step / (_STEPS + 1))
        for name, slope in _slopes(weights, context, future).items():
            means[name] += (1 - _MOMENTUM) * (slope - means[name])
            squares[name] += (1 - _SQUARES) * (slope**2 - squares[name])
            mean = means[name] / (1 - _MOMENTUM**step)
            square = squares[name] / (1 - _SQUARES**step)
            weights[name] -= (rate * mean / (np.sqrt(square) + _TINY)).astype(np.float32)
    return weights


def _examples(random: np.random.Generator) -> tuple[Floats, Floats]:
    """Contexts of any length, with holes, and what comes after them."""
    series = seasonal_series(random, _ROWS, CONTEXT + HORIZON)
    context, future = series[:, :CONTEXT], series[:, CONTEXT:]
    starts = random.integers(0, CONTEXT - _SHORTEST, (_ROWS, 1))
    holes = random.uniform(size=context.shape) < random.uniform(0, 0.1, (_ROWS, 1))
    return np.where((np.arange(CONTEXT) < starts) | holes, np.nan, context), future


def _slopes(weights: Weights, context: Floats, future: Floats) -> Weights:
    """The gradient of the loss, layer by layer from the last to the first."""
    patches, location, scale = normalise(context)
    quantiles, hidden, embedded = forward(weights, patches)
    wanted = (future - location) / scale
    too_low = wanted[:, :, None] > quantiles
    at_quantiles = np.where(too_low, -QUANTILES, 1 - QUANTILES).reshape(_ROWS, -1)
    at_quantiles = (at_quantiles / at_quantiles.size * len(QUANTILES)).astype(np.float32)
    at_hidden = (at_quantiles @ weights["quantiles"].T) * (hidden > 0)
    at_flat = (at_hidden @ weights["hidden"].T).reshape(embedded.shape) * (embedded > 0)
    at_patches = at_flat.reshape(_ROWS * PATCHES, -1)
    return {
        "quantiles": hidden.T @ at_quantiles,
        "quantiles_bias": at_quantiles.sum(axis=0),
        "hidden": embedded.reshape(_ROWS, -1).T @ at_hidden,
        "hidden_bias": at_hidden.sum(axis=0),
        "patch": patches.reshape(_ROWS * PATCHES, -1).T @ at_patches,
        "patch_bias": at_patches.sum(axis=0),
    }


if __name__ == "__main__":
    np.savez(Path(sys.argv[1]), **train())
