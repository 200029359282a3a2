"""A small network that continues time series, as Chronos-Bolt does: by patches, all at once.

The context is brought to mean 0 and deviation 1, cut into patches, and each patch is embedded
together with a mask of what is missing. From all embeddings a second layer makes the whole horizon
in one step: nine quantiles of each value to come. There is no token and no loop.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Weights = dict[str, Floats]

PATCH: Final = 16  # values
PATCHES: Final = 8
CONTEXT: Final = PATCH * PATCHES
"""The most recent values that are looked at; what is missing before them counts as unknown."""

HORIZON: Final = 32
QUANTILES: Final = np.arange(1, 10, dtype=np.float32) / 10
_EMBEDDING: Final = 64
_HIDDEN: Final = 256
_LEAST_SCALE: Final = 1e-5  # of a series that hardly moves


def fresh(random: np.random.Generator) -> Weights:
    """Weights to start training with."""
    sizes = {
        "patch": (2 * PATCH, _EMBEDDING),
        "hidden": (PATCHES * _EMBEDDING, _HIDDEN),
        "quantiles": (_HIDDEN, HORIZON * len(QUANTILES)),
    }
    weights: Weights = {}
    for name, (rows, columns) in sizes.items():
        scale = np.sqrt(2 / rows)
        weights[name] = (random.standard_normal((rows, columns)) * scale).astype(np.float32)
        weights[f"{name}_bias"] = np.zeros(columns, np.float32)
    return weights


def normalise(context: Floats) -> tuple[Floats, Floats, Floats]:
    """Bring series to one scale.

    Args:
        context: NaN where a value is missing.

    Shapes:
        context: (rows, length), any length.
        returns: patches (rows, PATCHES, 2 * PATCH), location and scale (rows, 1).
    """
    recent = context[:, -CONTEXT:].astype(np.float32)
    known = ~np.isnan(recent)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    location = np.where(known, recent, 0).sum(axis=1, keepdims=True) / count
    centred = np.where(known, recent - location, 0)
    scale = np.maximum(np.sqrt((centred**2).sum(axis=1, keepdims=True) / count), _LEAST_SCALE)
    ahead = ((0, 0), (CONTEXT - recent.shape[1], 0))
    values = np.pad(centred / scale, ahead).reshape(-1, PATCHES, PATCH)
    mask = np.pad(known, ahead).reshape(-1, PATCHES, PATCH)
    patches = np.concatenate([values, mask], axis=2).astype(np.float32)
    return patches, location.astype(np.float32), scale.astype(np.float32)


def forward(weights: Weights, patches: Floats) -> tuple[Floats, Floats, Floats]:
    """Quantiles of normalised patches, and the two layers between, which training needs.

    Shapes:
        quantiles: (rows, HORIZON, 9).
    """
    embedded = np.maximum(patches @ weights["patch"] + weights["patch_bias"], 0)
    flat = embedded.reshape(len(patches), -1)
    hidden = np.maximum(flat @ weights["hidden"] + weights["hidden_bias"], 0)
    quantiles = hidden @ weights["quantiles"] + weights["quantiles_bias"]
    return quantiles.reshape(-1, HORIZON, len(QUANTILES)), hidden, embedded


def forecast(weights: Weights, context: Floats) -> Floats:
    """Quantiles of the values to come, in the units of the context.

    Shapes:
        context: (rows, length).
        returns: (rows, HORIZON, 9), rising along the last axis.
    """
    patches, location, scale = normalise(context)
    quantiles, _, _ = forward(weights, patches)
    return np.sort(quantiles, axis=2) * scale[:, :, None] + location[:, :, None]
