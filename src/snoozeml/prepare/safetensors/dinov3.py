"""DINOv3 vision transformers (Siméoni et al. 2025, https://arxiv.org/abs/2508.10104).

Queries and keys are turned by where their patch lies, so images may be of any size.
"""

import math
from typing import Final

import numpy as np
from onnx import TensorProto

from snoozeml.prepare.safetensors.blocks import activation, attention, linear, mlp, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import Family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.images import (
    Sequences,
    any_image_input,
    grid_of,
    image_output,
    image_states,
    patches,
    preceded,
)

_EPS: Final = 1e-5
_CLASS: Final = 0  # the class token's place
_Turn = tuple[Value, Value]
"""Cosines and sines. Shapes: both: (tokens, size of a head / 2)"""


def _states(g: Graph, config: Config) -> None:
    w = Weights(g)
    tokens, turn = _embed(g, config, w.at("embeddings"))
    x = tokens.rows
    for index in range(config.size("num_hidden_layers", 12)):
        x = _layer(g, config, w.at(f"layer.{index}"), tokens, turn, x)
    x = norm(g, w.at("norm"), x, config.number("layer_norm_eps", _EPS))
    image_states(g, tokens, x)
    image_output(g, "pooler_output", tokens.at(x, _CLASS), tokens.features)


def _embed(g: Graph, config: Config, w: Weights) -> tuple[Sequences, _Turn]:
    projection = w.at("patch_embeddings")
    pixels = any_image_input(g, config, projection)
    x = patches(g, projection, pixels)
    registers = w.shape("register_tokens")[1]
    extra = [w["cls_token"], w["register_tokens"]] if registers else [w["cls_token"]]
    tokens = Sequences(g, preceded(g, x, *extra), "tokens", config.size("hidden_size", 384))
    return tokens, _turn(g, config, grid_of(g, projection, pixels), 1 + registers)


def _turn(g: Graph, config: Config, grid: Value, extra: int) -> _Turn:
    """How far each token is turned: patches by their centre, those before them not at all."""
    size = config.shared("hidden_size", "num_attention_heads", 384, 6)
    angles = g.op("Concat", *(_angles(g, config, grid, axis, size) for axis in (0, 1)), axis=-1)
    angles = g.op("Reshape", angles, g.ints(-1, size // 2))
    still = g.constant(np.zeros((extra, size // 2)))
    angles = g.op("Concat", still, angles, axis=0)
    return g.op("Cos", angles), g.op("Sin", angles)


def _angles(g: Graph, config: Config, grid: Value, axis: int, size: int) -> Value:
    """Of each patch along one axis of the image. Shapes: returns: (*grid, size / 4)"""
    base = config.number("rope_theta", 100.0)
    speeds = 2 * math.pi / base ** np.arange(0, 1, 4 / size)
    count = g.op("Squeeze", g.op("Slice", grid, g.ints(axis), g.ints(axis + 1)))
    count = g.op("Cast", count, to=TensorProto.FLOAT)
    steps = g.op("Range", g.constant(0.5), count, g.constant(1.0))
    centres = g.op("Sub", g.op("Mul", g.op("Div", steps, count), g.constant(2.0)), g.constant(1.0))
    column = g.op("Reshape", centres, g.ints(-1, 1, 1) if axis == 0 else g.ints(1, -1, 1))
    angles = g.op("Mul", column, g.constant(speeds))
    return g.op("Expand", angles, g.op("Concat", grid, g.ints(1), axis=0))


def _layer(g: Graph, config: Config, w: Weights, tokens: Sequences, turn: _Turn, x: Value) -> Value:
    eps = config.number("layer_norm_eps", _EPS)
    seen = norm(g, w.at("norm1"), x, eps)
    attended = _attend(g, config, w.at("attention"), tokens, turn, seen)
    x = _add(g, w.at("layer_scale1"), x, attended)
    inner = _feed_forward(g, config, w.at("mlp"), norm(g, w.at("norm2"), x, eps))
    return _add(g, w.at("layer_scale2"), x, inner)


def _attend(
    g: Graph, config: Config, w: Weights, tokens: Sequences, turn: _Turn, x: Value
) -> Value:
    heads = config.size("num_attention_heads", 6)
    q, k, v = (tokens.part(linear(g, w.at(f"{part}_proj"), x)) for part in "qkv")
    q, k = (g.op("RotaryEmbedding", part, g.ints(0), *turn, num_heads=heads) for part in (q, k))
    mixed = tokens.join(attention(g, q, k, v, heads=heads))
    return linear(g, w.at("o_proj"), mixed)


def _feed_forward(g: Graph, config: Config, w: Weights, x: Value) -> Value:
    act = config.text("hidden_act", "gelu")
    if not config.flag("use_gated_mlp", False):
        return mlp(g, w.at("up_proj"), act, w.at("down_proj"), x)
    gate = activation(g, act, linear(g, w.at("gate_proj"), x))
    return linear(g, w.at("down_proj"), g.op("Mul", gate, linear(g, w.at("up_proj"), x)))


def _add(g: Graph, scale: Weights, x: Value, update: Value) -> Value:
    return g.op("Add", x, g.op("Mul", update, scale["lambda1"]))


FAMILY: Final = Family("dinov3_vit", {"DINOv3ViTModel": _states})
