"""JinaBERT v2 (Günther et al. 2023, https://arxiv.org/abs/2310.19923).

BERT whose attention falls with the distance, and whose layers are gated. It is published in two
forms; the later one also normalises queries and keys, and what comes out of attention twice.
"""

from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.bert import masked_words
from snoozeml.prepare.safetensors.blocks import (
    activation,
    add_norm,
    embedding,
    linear,
    linears,
    norm,
)
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.positions import alibi_bias
from snoozeml.prepare.safetensors.post_norm import layer_norm_eps, pooler, typed
from snoozeml.prepare.safetensors.text import Encoded, SelfAttention, Tokens, token_inputs

_GATES: Final = {"geglu": "gelu", "reglu": "relu"}
_QKV: Final = ("attention.self.query", "attention.self.key", "attention.self.value")


def encode(g: Graph, config: Config) -> Encoded:
    config.require("is_decoder", False)
    config.text("position_embedding_type")
    config.require("position_embedding_type", "alibi")
    config.require("feed_forward_type", *_GATES)
    w = Weights(g).first_of("bert", "model", "")
    tokens = token_inputs(g, config, max_length=config.size("max_position_embeddings", 8192))
    count = config.size("num_attention_heads")
    attention = SelfAttention(count, config.size("hidden_size"), alibi_bias(g, tokens, count))
    x = _embeddings(g, config, w.at("embeddings"), tokens)
    for index in range(config.size("num_hidden_layers")):
        inner = w.at(f"encoder.layer.{index}")
        later = inner.has_any("mlp.up_gated_layer")
        x = (_later_layer if later else _first_layer)(g, config, inner, tokens, attention, x)
    return Encoded(tokens, x, pooler(g, w, tokens, x))


def _embeddings(g: Graph, config: Config, w: Weights, tokens: Tokens) -> Value:
    words = embedding(g, w.at("word_embeddings"), tokens.ids, config.size("vocab_size"))
    x = typed(g, config, w, tokens, words)
    return norm(g, w.at("LayerNorm"), x, layer_norm_eps(config))


def _first_layer(
    g: Graph, config: Config, w: Weights, tokens: Tokens, attention: SelfAttention, x: Value
) -> Value:
    """Shapes: x, returns: (tokens, features)"""
    q, k, v = linears(g, w, _QKV, x, 3)
    mixed = linear(g, w.at("attention.output.dense"), attention.attend(g, tokens, (q, k, v)))
    x = add_norm(g, w.at("attention.output.LayerNorm"), mixed, x, layer_norm_eps(config))
    gate, up = linears(g, w, ["mlp.gated_layers"], x, 2)
    down = linear(g, w.at("mlp.wo"), _gated(g, config, up, gate))
    return add_norm(g, w.at("mlp.layernorm"), down, x, layer_norm_eps(config))


def _later_layer(
    g: Graph, config: Config, w: Weights, tokens: Tokens, attention: SelfAttention, x: Value
) -> Value:
    """Shapes: x, returns: (tokens, features)"""
    eps = layer_norm_eps(config)
    q, k, v = linears(g, w, _QKV, x, 3)
    q = norm(g, w.at("attention.self.layer_norm_q"), q, eps)
    k = norm(g, w.at("attention.self.layer_norm_k"), k, eps)
    mixed = linear(g, w.at("attention.output.dense"), attention.attend(g, tokens, (q, k, v)))
    attended = add_norm(g, w.at("attention.output.LayerNorm"), mixed, x, eps)
    x = add_norm(g, w.at("layer_norm_1"), attended, x, eps)
    up, gate = linears(g, w, ["mlp.up_gated_layer"], x, 2)
    down = linear(g, w.at("mlp.down_layer"), _gated(g, config, up, gate))
    return add_norm(g, w.at("layer_norm_2"), down, x, eps)


def _gated(g: Graph, config: Config, up: Value, gate: Value) -> Value:
    return g.op("Mul", up, activation(g, _GATES[config.text("feed_forward_type")], gate))


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    """Published encoders go by this name, too, and come without the head."""
    head = masked_words if Weights(g).has_any("cls") else heads.states
    head(g, config, encoded)


FAMILY: Final = text_family(
    "bert",
    encode,
    {
        "JinaBertModel": heads.states,
        "JinaBertForMaskedLM": _masked_words,
        "JinaBertForSequenceClassification": heads.classes_of_pooled,
        "JinaBertForTokenClassification": heads.token_classes,
    },
)
