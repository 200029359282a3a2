"""Plain multi-layer perceptrons: linear layers, normalisations, and activations between them.

A checkpoint holds no activations, so config.json names them: one for each layer of a list, or one
for all places where the numbers of an `nn.Sequential` show that something without tensors stands.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from snoozeml.core.tensors import TensorSpec
from snoozeml.errors import ModelFailed, UnsupportedArchitecture
from snoozeml.prepare.safetensors.blocks import activation, linear, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import Family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights

_NO_ACTIVATION: Final = "linear"
_EPS: Final = 1e-5
_NUMBERED: Final = re.compile(r"(?P<prefix>.*?)(?P<number>\d+)\.[^.]+")
_SAY_SO: Final = 'list the layers in config.json, as "layers": [{"name": …, "activation": …}, …]'


class _Layer(NamedTuple):
    name: str
    activation: str
    eps: float


def _build(g: Graph, config: Config) -> None:
    layers = _listed(config) or list(_numbered(g, config))
    shapes = [Weights(g).at(layer.name).shape("weight") for layer in layers]
    x = g.input(TensorSpec("features", "FP32", ("batch", shapes[0][-1]), batch_axis=0))
    for layer in layers:
        x = activation(g, layer.activation, _apply(g, layer, x))
    g.output(TensorSpec("output", "FP32", ("batch", shapes[-1][0]), batch_axis=0), x)


def _apply(g: Graph, layer: _Layer, x: Value) -> Value:
    """What kind of layer it is, its tensors tell."""
    w = Weights(g).at(layer.name)
    if "running_mean" in w:
        statistics = (w[name] for name in ("weight", "bias", "running_mean", "running_var"))
        return g.op("BatchNormalization", x, *statistics, epsilon=layer.eps)
    match len(w.shape("weight")), "bias" in w:
        case 2, _:
            return linear(g, w, x)
        case 1, True:
            return norm(g, w, x, layer.eps)
    raise UnsupportedArchitecture(
        f"layer {layer.name} has a weight of shape {list(w.shape('weight'))}; the layers of an MLP"
        " may be Linear, BatchNorm1d, and LayerNorm with a bias"
    )


def _listed(config: Config) -> list[_Layer]:
    eps = config.number("eps", _EPS)
    return [
        _Layer(
            layer.text("name"), layer.text("activation", _NO_ACTIVATION), layer.number("eps", eps)
        )
        for layer in config.sections("layers")
    ]


def _numbered(g: Graph, config: Config) -> Iterator[_Layer]:
    """The layers of an `nn.Sequential`; where numbers are left out, there is an activation.

    Raises:
        ModelFailed: there are other tensors, too, or it is not clear where the activations are.
    """
    prefix, numbers = _numbers(g)
    eps = config.number("eps", _EPS)
    *runs, last = _runs(numbers)
    for run in (*runs, last):
        _check(g, prefix, run)
        for number in run[:-1]:
            yield _Layer(f"{prefix}{number}", _NO_ACTIVATION, eps)
        ending = config.text("output_activation", _NO_ACTIVATION) if run is last else None
        yield _Layer(f"{prefix}{run[-1]}", ending or config.text("activation"), eps)


def _numbers(g: Graph) -> tuple[str, list[int]]:
    """What the names of all tensors begin with, and the numbers that follow."""
    matches = {name: _NUMBERED.fullmatch(name) for name in g.tensors}
    others = [name for name, match in matches.items() if match is None]
    prefixes = sorted({match["prefix"] for match in matches.values() if match})
    if others or len(prefixes) != 1:
        found = ", ".join([*others, *(f"{prefix}*" for prefix in prefixes)])
        raise ModelFailed(f"the tensors are not those of one nn.Sequential: {found}; {_SAY_SO}")
    return prefixes[0], sorted({int(match["number"]) for match in matches.values() if match})


def _runs(numbers: list[int]) -> list[list[int]]:
    """Numbers that follow each other, together."""
    apart = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in apart]


def _check(g: Graph, prefix: str, run: list[int]) -> None:
    """With one linear layer in each run, each activation is where one must be."""
    shapes = (Weights(g).at(f"{prefix}{number}").shape("weight") for number in run)
    if sum(len(shape) == 2 for shape in shapes) != 1:
        where = f"{prefix}{run[0]} to {prefix}{run[-1]}"
        raise ModelFailed(
            f"it is not clear where the activations are: the layers {where}, without others between"
            f" them, should have one Linear; {_SAY_SO}"
        )


FAMILY: Final = Family("mlp", {"MLP": _build})
