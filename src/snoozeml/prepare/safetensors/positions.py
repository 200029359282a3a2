"""How attention learns where tokens are, where no table of positions is added to them."""

import math
from typing import Final

import numpy as np
from onnx import TensorProto

from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value
from snoozeml.prepare.safetensors.text import Tokens
from snoozeml.wire.tensors import Array

_NEVER: Final = -1e30
"""Low enough to leave no weight after a softmax, and too high to overflow beside a mask's value."""


class Rotary:
    """Turns pairs of features by angles that grow with the position.

    Su et al. 2021, https://arxiv.org/abs/2104.09864, with the first half of each head's features
    paired with the second.

    Args:
        frequencies: (size of a head / 2,), in radians per position.
    """

    def __init__(self, g: Graph, tokens: Tokens, frequencies: Array) -> None:
        self._g: Final = g
        columns = g.op("Cast", tokens.columns, to=TensorProto.FLOAT)
        angles = g.op("Mul", g.op("Unsqueeze", columns, g.ints(1)), g.constant(frequencies))
        self._cos: Final = g.op("Cos", angles)
        self._sin: Final = g.op("Sin", angles)

    def turn(self, x: Value) -> Value:
        """Shapes: x, returns: (tokens, heads * size)"""
        # To the operator, all tokens are one text, and have the rows of its tables in turn.
        text = self._g.op("Unsqueeze", x, self._g.ints(0))
        turned = self._g.op("RotaryEmbedding", text, self._g.ints(0), self._cos, self._sin)
        return self._g.op("Squeeze", turned, self._g.ints(0))


def frequencies(size: int, theta: float, divisor: float = 1.0) -> Array:
    """Of `Rotary`: from 1 down to nearly 1 / theta, all divided.

    Args:
        size: of a head.
    """
    if size % 2:
        raise ModelFailed(f"config.json: heads of {size} features cannot be rotated in pairs")
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    found: Array = 1 / np.float32(theta) ** exponents / np.float32(divisor)
    return found


def configured_frequencies(size: int, config: Config, default_theta: float) -> Array:
    """As `rope_parameters`, or `rope_theta` alone, say.

    Raises:
        UnsupportedArchitecture: they ask for a kind of scaling that we do not know.
    """
    config.require("rope_scaling")
    config.require("partial_rotary_factor", 1.0)
    theta = config.number("rope_theta", default_theta)
    return parametrised_frequencies(size, config.section("rope_parameters"), theta)


def parametrised_frequencies(size: int, parameters: Config, default_theta: float) -> Array:
    """Like `configured_frequencies`, by one of several sets of `rope_parameters`."""
    for key in ("rope_type", "type"):
        parameters.require(key, "default", "linear")
    parameters.require("partial_rotary_factor", 1.0)
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    divisor = parameters.number("factor") if kind == "linear" else 1.0
    return frequencies(size, parameters.number("rope_theta", default_theta), divisor)


def window_bias(g: Graph, tokens: Tokens, reach: int) -> Value:
    """Of attention to no more than `reach` positions before and after.

    Shapes:
        returns: (1, 1, sequence, sequence)
    """
    inside = g.op("LessOrEqual", _distances(g, tokens), g.constant(float(reach)))
    return g.op("Where", inside, g.constant(0.0), g.constant(_NEVER))


def alibi_bias(g: Graph, tokens: Tokens, heads: int) -> Value:
    """Of attention that falls with the distance, alike to both sides, in each head by its slope.

    Press et al. 2021, https://arxiv.org/abs/2108.12409.

    Shapes:
        returns: (1, heads, sequence, sequence)
    """
    slopes = -np.array(_slopes(heads), np.float32).reshape(1, heads, 1, 1)
    return g.op("Mul", _distances(g, tokens), g.constant(slopes))


def _slopes(heads: int) -> list[float]:
    """A geometric series; other numbers than powers of two borrow from the next power's."""
    power = 1 << math.floor(math.log2(heads))
    series = [2 ** (-8 * (index + 1) / power) for index in range(power)]
    return series if power == heads else series + _slopes(2 * power)[::2][: heads - power]


def _distances(g: Graph, tokens: Tokens) -> Value:
    """Between any two positions. Shapes: returns: (1, 1, sequence, sequence)"""
    positions = g.op("Cast", tokens.positions, to=TensorProto.FLOAT)
    rows = g.op("Unsqueeze", positions, g.ints(0, 1, 2))
    columns = g.op("Unsqueeze", positions, g.ints(0, 1, 3))
    return g.op("Abs", g.op("Sub", rows, columns))
