"""BERT with rotated positions and gated layers: what NomicBERT and GTE have in common."""

from dataclasses import dataclass
from typing import Final

from snoozeml.prepare.safetensors.blocks import (
    activation,
    add_norm,
    embedding,
    linear,
    linears,
    norm,
)
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.positions import Rotary
from snoozeml.prepare.safetensors.post_norm import pooler, typed
from snoozeml.prepare.safetensors.text import Encoded, SelfAttention, Tokens, token_inputs
from snoozeml.wire.tensors import Array


@dataclass(frozen=True)
class Names:
    """What a checkpoint calls its parts, those from `qkv` on below each layer."""

    layers: str
    embeddings_norm: str
    qkv: tuple[str, ...]
    out: str
    attention_norm: str
    up_gate: tuple[str, ...]
    down: str
    mlp_norm: str


UNIFIED: Final = Names(
    layers="layers",
    embeddings_norm="embeddings.LayerNorm",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    out="self_attn.o_proj",
    attention_norm="post_attention_layernorm",
    up_gate=("mlp.up_proj", "mlp.gate_proj"),
    down="mlp.down_proj",
    mlp_norm="post_mlp_layernorm",
)
"""As the transformers library calls them since it has these architectures itself."""


@dataclass(frozen=True)
class Recipe:
    """What differs between the families.

    Attributes:
        max_length: in tokens.
        act: of the gates.
        frequencies: see `Rotary`.
    """

    names: Names
    max_length: int
    act: str
    eps: float
    frequencies: Array


def encode(g: Graph, config: Config, w: Weights, recipe: Recipe) -> Encoded:
    """Args: w: of the model, without its prefix."""
    names = recipe.names
    tokens = token_inputs(g, config, max_length=recipe.max_length)
    rotary = Rotary(g, tokens, recipe.frequencies)
    attention = SelfAttention(config.size("num_attention_heads"), config.size("hidden_size"))
    x = norm(
        g,
        w.at(names.embeddings_norm),
        _embeddings(g, config, w.at("embeddings"), tokens),
        recipe.eps,
    )
    for index in range(config.size("num_hidden_layers")):
        inner = w.at(f"{names.layers}.{index}")
        q, k, v = linears(g, inner, names.qkv, x, 3)
        mixed = attention.attend(g, tokens, (rotary.turn(q), rotary.turn(k), v))
        attended = linear(g, inner.at(names.out), mixed)
        x = add_norm(g, inner.at(names.attention_norm), attended, x, recipe.eps)
        x = add_norm(g, inner.at(names.mlp_norm), _gated(g, inner, recipe, x), x, recipe.eps)
    return Encoded(tokens, x, pooler(g, w, tokens, x))


def _embeddings(g: Graph, config: Config, w: Weights, tokens: Tokens) -> Value:
    """Of words, in a table that some pad with rows; and of token types, where there are some."""
    multiple = config.size("pad_vocab_size_multiple", 1)
    rows = -(-config.size("vocab_size") // multiple) * multiple
    return typed(g, config, w, tokens, embedding(g, w.at("word_embeddings"), tokens.ids, rows))


def _gated(g: Graph, w: Weights, recipe: Recipe, x: Value) -> Value:
    up, gate = linears(g, w, recipe.names.up_gate, x, 2)
    product = g.op("Mul", up, activation(g, recipe.act, gate))
    return linear(g, w.at(recipe.names.down), product)
