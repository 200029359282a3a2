"""ALBERT (Lan et al. 2019, https://arxiv.org/abs/1909.11942): layers share their weights."""

from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.blocks import linear
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.post_norm import Layers, Names, embeddings, layer_norm_eps
from snoozeml.prepare.safetensors.text import Encoded, token_inputs

_MOST_LAYERS: Final = 1000
_NAMES: Final = Names(
    query="attention.query",
    key="attention.key",
    value="attention.value",
    mix="attention.dense",
    mix_norm="attention.LayerNorm",
    widen="ffn",
    narrow="ffn_output",
    norm="full_layer_layer_norm",
)


def encode(g: Graph, config: Config) -> Encoded:
    w = Weights(g).first_of("albert", "")
    tokens = token_inputs(g, config, max_length=config.size("max_position_embeddings"))
    x = embeddings(g, config, w.at("embeddings"), tokens, tokens.columns)
    x = linear(g, w.at("encoder.embedding_hidden_mapping_in"), x)
    x = _grouped(config, w.at("encoder.albert_layer_groups"), Layers(g, config, tokens, _NAMES), x)
    if not w.has_any("pooler"):
        return Encoded(tokens, x)
    return Encoded(tokens, x, g.op("Tanh", linear(g, w.at("pooler"), tokens.first(x))))


def _grouped(config: Config, w: Weights, layers: Layers, x: Value) -> Value:
    """Groups of consecutive layers are each one and the same layer, or a few of them, repeated."""
    repeats = config.size("num_hidden_layers", most=_MOST_LAYERS)
    groups, inner_layers = config.size("num_hidden_groups", 1), config.size("inner_group_num", 1)
    for index in range(repeats):
        group = w.at(str(int(index / (repeats / groups)))).at("albert_layers")
        for inner in range(inner_layers):
            x = layers.layer(group.at(str(inner)), x)
    return x


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    w = Weights(g).at("predictions")
    act, eps = config.text("hidden_act", "gelu"), layer_norm_eps(config)
    x = heads.transformed(g, w, encoded.hidden, act, eps)
    table = Weights(g).first_of("albert", "").at("embeddings.word_embeddings")
    heads.tied_words(g, encoded, x, w, table)


FAMILY: Final = text_family(
    "albert",
    encode,
    {
        "AlbertModel": heads.states,
        "AlbertForSequenceClassification": heads.classes_of_pooled,
        "AlbertForTokenClassification": heads.token_classes,
        "AlbertForMaskedLM": _masked_words,
    },
)
