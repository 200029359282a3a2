"""BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805)."""

from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.blocks import (
    activation,
    add_norm,
    attention,
    embedding,
    linear,
)
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.text import Encoded, Tokens, token_inputs, token_types

_EPS: Final = 1e-12


def encode(g: Graph, config: Config) -> Encoded:
    w = Weights(g).first_of("bert", "model", "")
    tokens = token_inputs(g, config, max_length=config.size("max_position_embeddings"))
    x = _embeddings(g, config, w.at("embeddings"), tokens)
    for index in range(config.size("num_hidden_layers")):
        x = layer(g, config, w.at(f"encoder.layer.{index}"), tokens, x)
    return Encoded(tokens, x, pooler(g, w, tokens, x))


def _embeddings(g: Graph, config: Config, w: Weights, tokens: Tokens) -> Value:
    types = token_types(g, tokens, config.size("type_vocab_size", 2))
    words = embedding(g, w.at("word_embeddings"), tokens.ids)
    kinds = embedding(g, w.at("token_type_embeddings"), types)
    places = embedding(g, w.at("position_embeddings"), tokens.columns)
    eps = config.number("layer_norm_eps", _EPS)
    return add_norm(g, w.at("LayerNorm"), g.op("Add", words, kinds), places, eps)


def layer(g: Graph, config: Config, w: Weights, tokens: Tokens, x: Value) -> Value:
    """One encoder layer, normalised after each half. Shapes: x, returns: (tokens, features)"""
    eps = config.number("layer_norm_eps", _EPS)
    attended = linear(g, w.at("attention.output.dense"), _attend(g, config, w, tokens, x))
    x = add_norm(g, w.at("attention.output.LayerNorm"), attended, x, eps)
    inner = linear(g, w.at("intermediate.dense"), x)
    inner = activation(g, config.text("hidden_act", "gelu"), inner)
    return add_norm(g, w.at("output.LayerNorm"), linear(g, w.at("output.dense"), inner), x, eps)


def _attend(g: Graph, config: Config, w: Weights, tokens: Tokens, x: Value) -> Value:
    q, k, v = (
        tokens.pad(linear(g, w.at(f"attention.self.{part}"), x))
        for part in ("query", "key", "value")
    )
    heads_ = config.size("num_attention_heads")
    mixed = attention(g, q, k, v, heads=heads_, key_mask=tokens.key_mask)
    return tokens.pack(mixed, config.size("hidden_size"))


def pooler(g: Graph, w: Weights, tokens: Tokens, x: Value) -> Value | None:
    """A dense layer on each text's first token; None where the checkpoint has none."""
    if not w.has_any("pooler"):
        return None
    return g.op("Tanh", linear(g, w.at("pooler.dense"), tokens.first(x)))


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    w = Weights(g).at("cls.predictions")
    act, eps = config.text("hidden_act", "gelu"), config.number("layer_norm_eps", _EPS)
    x = heads.transformed(g, w.at("transform"), encoded.hidden, act, eps)
    table = Weights(g).first_of("bert", "").at("embeddings.word_embeddings")
    heads.words(g, encoded, x, table, w["bias"])


FAMILY: Final = text_family(
    "bert",
    encode,
    {
        "BertModel": heads.states,
        "BertForSequenceClassification": heads.classes_of_pooled,
        "BertForTokenClassification": heads.token_classes,
        "BertForMaskedLM": _masked_words,
    },
)
