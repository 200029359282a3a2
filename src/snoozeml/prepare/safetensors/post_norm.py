"""What BERT and its descendants share: the tables at the bottom, then layers of two halves.

Each half, attention and a pair of linear layers, is added to its input and normalised afterwards.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from snoozeml.prepare.safetensors.blocks import (
    activation,
    add_norm,
    embedding,
    linear,
)
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.text import SelfAttention, Tokens, token_types


class Names(NamedTuple):
    """How a family calls the parts of a layer."""

    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    mix: str = "attention.output.dense"
    mix_norm: str = "attention.output.LayerNorm"
    widen: str = "intermediate.dense"
    narrow: str = "output.dense"
    norm: str = "output.LayerNorm"


BERT: Final = Names()


@dataclass(frozen=True)
class Layers:
    """Builds layers.

    Attributes:
        bias: of attention, see `blocks.attention`.
    """

    g: Graph
    config: Config
    tokens: Tokens
    names: Names = BERT
    bias: Value | None = None

    def all(self, w: Weights, x: Value) -> Value:
        """As many as the configuration says. Shapes: x, returns: (tokens, features)"""
        self.config.require("is_decoder", False)
        for index in range(self.config.size("num_hidden_layers")):
            x = self.layer(w.at(str(index)), x)
        return x

    def layer(self, w: Weights, x: Value) -> Value:
        """Shapes: x, returns: (tokens, features)"""
        features = self.config.size("hidden_size")
        heads = self.config.size("num_attention_heads")
        attention = SelfAttention(heads, features, self.bias)
        return self.after(w, x, attention.attend(self.g, self.tokens, self.parts(w, x)))

    def parts(self, w: Weights, x: Value) -> list[Value]:
        """Queries, keys and values. Shapes: x, returns: each (tokens, features)"""
        names = (self.names.query, self.names.key, self.names.value)
        return [linear(self.g, w.at(name), x) for name in names]

    def after(self, w: Weights, x: Value, attended: Value) -> Value:
        """What follows attention in a layer. Shapes: all: (tokens, features)"""
        g, names, eps = self.g, self.names, layer_norm_eps(self.config)
        x = add_norm(g, w.at(names.mix_norm), linear(g, w.at(names.mix), attended), x, eps)
        inner = linear(g, w.at(names.widen), x)
        inner = activation(g, self.config.text("hidden_act", "gelu"), inner)
        return add_norm(g, w.at(names.norm), linear(g, w.at(names.narrow), inner), x, eps)


def layer_norm_eps(config: Config) -> float:
    return config.number("layer_norm_eps", 1e-12)


def embeddings(g: Graph, config: Config, w: Weights, tokens: Tokens, positions: Value) -> Value:
    """Words, positions and, where the checkpoint has them, token types; added and normalised.

    Args:
        positions: rows of the table of positions.

    Shapes:
        positions: (tokens,); returns: (tokens, features)
    """
    config.require("position_embedding_type", "absolute")
    width = embedding_size(config)
    x = embedding(g, w.at("word_embeddings"), tokens.ids, config.size("vocab_size"), width)
    rows = config.size("max_position_embeddings")
    places = embedding(g, w.at("position_embeddings"), positions, rows, width)
    x = typed(g, config, w, tokens, x)
    return add_norm(g, w.at("LayerNorm"), x, places, layer_norm_eps(config))


def typed(g: Graph, config: Config, w: Weights, tokens: Tokens, x: Value) -> Value:
    """Add token types, where the checkpoint has them. Shapes: x, returns: (tokens, features)"""
    rows = config.integer("type_vocab_size", 2)
    if rows == 0 or not w.has_any("token_type_embeddings"):
        return x
    types = token_types(g, tokens, rows)
    width = embedding_size(config)
    return g.op("Add", x, embedding(g, w.at("token_type_embeddings"), types, rows, width))


def embedding_size(config: Config) -> int:
    """Features of the tables, which the first layer may yet widen."""
    return config.size("embedding_size", config.size("hidden_size"))


def pooler(g: Graph, w: Weights, tokens: Tokens, x: Value) -> Value | None:
    """A dense layer on each text's first token; None where the checkpoint has none."""
    if not w.has_any("pooler"):
        return None
    return g.op("Tanh", linear(g, w.at("pooler.dense"), tokens.first(x)))
