"""The forecaster as a Python model: weights from a file, one call per batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from network import QUANTILES, Floats, forecast


class Model:
    """Takes `context`, rows of a time series; gives what comes next."""

    def load(self, model_dir: str, device: str) -> None:
        """Read the weights; numpy knows no device but the CPU."""
        with np.load(Path(model_dir, "weights.npz")) as weights:
            self._weights = dict(weights)

    def predict(self, inputs: dict[str, Floats]) -> dict[str, Floats]:
        """Continue each row.

        Raises:
            ValueError: a row holds no value at all.
        """
        context = inputs["context"]
        if np.isnan(context).all(axis=1).any():
            raise ValueError("context: each row needs at least one value that is not missing")
        quantiles = forecast(self._weights, context)
        return {"forecast": quantiles[:, :, len(QUANTILES) // 2], "quantiles": quantiles}
