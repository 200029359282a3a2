from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from references.reference import Arrays, Reference

_IN, _INNER, _OUT = 5, 7, 3


class Sequential:
    """Layers of torch, with every parameter and statistic random.

    Args:
        names: what the checkpoint calls the layers; their numbers if None.
        config: what config.json says beside the architecture.
    """

    def __init__(
        self, *layers: nn.Module, prefix: str = "", names: list[str] | None = None, **config: Any
    ) -> None:
        self._model = nn.Sequential(*layers).eval()
        generator = torch.Generator().manual_seed(0)
        state = self._model.state_dict()
        for tensor in state.values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
        self.config = {"architectures": ["MLP"], **config}
        self.tensors = {_name(key, prefix, names): value.numpy() for key, value in state.items()}
        rows = np.random.default_rng(1)
        self.inputs = [
            {"features": rows.normal(size=(count, _IN)).astype(np.float32)} for count in (1, 4)
        ]

    def infer(self, inputs: Arrays) -> Arrays:
        with torch.no_grad():
            return {"output": self._model(torch.from_numpy(inputs["features"])).numpy()}


def _name(key: str, prefix: str, names: list[str] | None) -> str:
    number, tensor = key.split(".")
    return f"{names[int(number)]}.{tensor}" if names else f"{prefix}{key}"


def _linear(bias: bool = True) -> list[nn.Linear]:
    sizes = ((_IN, _INNER), (_INNER, _INNER), (_INNER, _OUT))
    return [nn.Linear(*size, bias=bias) for size in sizes]


def _plain() -> Reference:
    first, second, third = _linear()
    return Sequential(
        *(first, nn.Tanh(), second, nn.Tanh(), nn.Dropout(), third),
        activation="tanh",
    )


def _normalised() -> Reference:
    """Normalised before and after activations, as others name it."""
    first, second, third = _linear(bias=False)
    return Sequential(
        *(first, nn.BatchNorm1d(_INNER, eps=1e-2), nn.ELU(), second, nn.ELU()),
        *(nn.LayerNorm(_INNER, eps=1e-2), third, nn.Softmax(-1)),
        prefix="net.",
        activation="elu",
        output_activation="softmax",
        eps=1e-2,
    )


def _listed() -> Reference:
    first, second, third = _linear()
    return Sequential(
        *(first, nn.LeakyReLU(), nn.BatchNorm1d(_INNER), second, nn.SiLU(), third, nn.Sigmoid()),
        names=["fc1", "", "bn", "body.fc2", "", "out", ""],
        layers=[
            {"name": "fc1", "activation": "leaky_relu"},
            {"name": "bn"},
            {"name": "body.fc2", "activation": "silu"},
            {"name": "out", "activation": "sigmoid"},
        ],
    )


CASES: dict[str, Callable[[], Reference]] = {
    "mlp": _plain,
    "mlp-normalised": _normalised,
    "mlp-listed": _listed,
}
