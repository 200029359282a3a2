"""DINOv2 (Oquab et al. 2023, https://arxiv.org/abs/2304.07193), for images of any size.

Registers are tokens that belong to no patch (Darcet et al. 2023, https://arxiv.org/abs/2309.16588).
"""

import math
from functools import partial
from typing import Final

import numpy as np

from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.blocks import activation, linear, linears, mlp, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import Family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.images import (
    Sequences,
    any_image_input,
    grid_of,
    image_classes,
    image_output,
    image_states,
    patches,
    preceded,
)

_EPS: Final = 1e-6
_CLASS: Final = 0  # the class token's place

# The cubic kernels that the reference resizes with.
_SHARP: Final[dict[str, float]] = {"cubic_coeff_a": -0.75}
_SMOOTH: Final[dict[str, float]] = {"cubic_coeff_a": -0.5, "antialias": 1, "exclude_outside": 1}


def _encode(g: Graph, config: Config, w: Weights, antialias: bool) -> tuple[Sequences, Value]:
    """Shapes: returns: (batch * tokens, features)"""
    embedded = _embed(g, config, w.at("embeddings"), antialias)
    tokens = Sequences(g, embedded, "tokens", config.size("hidden_size", 768))
    x = tokens.rows
    for index in range(config.size("num_hidden_layers", 12)):
        x = _layer(g, config, w.at(f"encoder.layer.{index}"), tokens, x)
    return tokens, norm(g, w.at("layernorm"), x, config.number("layer_norm_eps", _EPS))


def _embed(g: Graph, config: Config, w: Weights, antialias: bool) -> Value:
    """Tokens with their positions, of which registers have none."""
    projection, table = w.at("patch_embeddings.projection"), w["position_embeddings"]
    pixels = any_image_input(g, config, projection)
    x = patches(g, projection, pixels)
    places = _resized(g, w, grid_of(g, projection, pixels), antialias)
    first = g.op("Slice", table, g.ints(0), g.ints(1), g.ints(1))
    registers = [w["register_tokens"]] if _registers(w) else []
    return preceded(g, g.op("Add", x, places), g.op("Add", w["cls_token"], first), *registers)


def _registers(w: Weights) -> int:
    return w.shape("register_tokens")[1] if "register_tokens" in w else 0


def _resized(g: Graph, w: Weights, grid: Value, antialias: bool) -> Value:
    """Positions of patches, stretched to an image's grid. Shapes: returns: (1, patches, features)

    Resizing is linear along each axis; done by products of matrices, it takes a fiftieth of the
    time that the operator Resize takes.
    """
    _, count, features = w.shape("position_embeddings")
    side = math.isqrt(count - 1)
    if side * side != count - 1:
        raise ModelFailed(f"the checkpoint has {count - 1} positions, which fill no square")
    x = g.op("Slice", w["position_embeddings"], g.ints(1), g.ints(count), g.ints(1))
    down, across = (_stretch(g, side, grid, axis, antialias) for axis in (0, 1))
    x = g.op("MatMul", down, g.op("Reshape", x, g.ints(side, side * features)))
    x = g.op("MatMul", across, g.op("Reshape", x, g.ints(-1, side, features)))
    return g.op("Reshape", x, g.ints(1, -1, features))


def _stretch(g: Graph, side: int, grid: Value, axis: int, antialias: bool) -> Value:
    """The matrix that resizes along one axis, which is a resized unit matrix.

    Shapes:
        returns: (size of the grid along the axis, side)
    """
    size = g.op("Slice", grid, g.ints(axis), g.ints(axis + 1))
    shape = g.op("Concat", g.ints(1, 1), size, g.ints(side), axis=0)
    unit = g.constant(np.eye(side)[None, None])
    kernel = _SMOOTH if antialias else _SHARP
    matrix = g.op("Resize", unit, None, None, shape, mode="cubic", **kernel)
    return g.op("Squeeze", matrix, g.ints(0, 1))


def _layer(g: Graph, config: Config, w: Weights, tokens: Sequences, x: Value) -> Value:
    eps = config.number("layer_norm_eps", _EPS)
    seen = norm(g, w.at("norm1"), x, eps)
    q, k, v = linears(g, w.at("attention.attention"), ("query", "key", "value"), seen, 3)
    attended = tokens.attend(q, k, v, heads=config.size("num_attention_heads", 12))
    x = _add(g, w.at("layer_scale1"), x, linear(g, w.at("attention.output.dense"), attended))
    inner = _feed_forward(g, config, w.at("mlp"), norm(g, w.at("norm2"), x, eps))
    return _add(g, w.at("layer_scale2"), x, inner)


def _feed_forward(g: Graph, config: Config, w: Weights, x: Value) -> Value:
    if not config.flag("use_swiglu_ffn", False):
        return mlp(g, w.at("fc1"), config.text("hidden_act", "gelu"), w.at("fc2"), x)
    gate, up = linears(g, w, ["weights_in"], x, 2)
    return linear(g, w.at("weights_out"), g.op("Mul", activation(g, "silu", gate), up))


def _add(g: Graph, scale: Weights, x: Value, update: Value) -> Value:
    return g.op("Add", x, g.op("Mul", update, scale["lambda1"]))


def _states(name: str, antialias: bool, g: Graph, config: Config) -> None:
    tokens, x = _encode(g, config, Weights(g).first_of(name, ""), antialias)
    image_states(g, tokens, x)
    image_output(g, "pooler_output", tokens.at(x, _CLASS), tokens.features)


def _classes(name: str, antialias: bool, g: Graph, config: Config) -> None:
    """`logits`, from the class token and the mean of the patches."""
    w = Weights(g).at(name)
    tokens, x = _encode(g, config, w, antialias)
    mean = tokens.mean(x, start=1 + _registers(w.at("embeddings")))
    both = g.op("Concat", tokens.at(x, _CLASS), mean, axis=-1)
    image_classes(g, "logits", Weights(g).at("classifier"), both)


def _family(name: str, model: str, antialias: bool) -> Family:
    return Family(
        name,
        {
            f"{model}Model": partial(_states, name, antialias),
            f"{model}ForImageClassification": partial(_classes, name, antialias),
        },
    )


FAMILIES: Final = (
    _family("dinov2", "Dinov2", antialias=False),
    _family("dinov2_with_registers", "Dinov2WithRegisters", antialias=True),
)
