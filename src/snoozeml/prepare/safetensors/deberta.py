"""DeBERTa, versions 2 and 3 (He et al. 2021, https://arxiv.org/abs/2111.09543)."""

from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.blocks import activation, add_norm, embedding, linear, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.disentangled import Disentangled
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.post_norm import (
    Layers,
    Names,
    embedding_size,
    layer_norm_eps,
    typed,
)
from snoozeml.prepare.safetensors.text import Encoded, Tokens, token_inputs

_NAMES: Final = Names(
    query="attention.self.query_proj",
    key="attention.self.key_proj",
    value="attention.self.value_proj",
)


def encode(g: Graph, config: Config) -> Encoded:
    w = Weights(g).first_of("deberta", "")
    longest = config.size("max_position_embeddings") if _has_positions(config) else None
    tokens = token_inputs(g, config, max_length=longest)
    x = embedded = _embeddings(g, config, w.at("embeddings"), tokens)
    layers = Layers(g, config, tokens, _NAMES)
    attention = Disentangled(g, config, w.at("encoder"), tokens)
    for index in range(config.size("num_hidden_layers")):
        layer = w.at(f"encoder.layer.{index}")
        attended = attention.attend(layer.at("attention.self"), layers.parts(layer, x))
        x = layers.after(layer, x, attended)
        if index == 0 and config.integer("conv_kernel_size", 0) > 0:
            x = _convolved(g, config, w.at("encoder.conv"), tokens, (embedded, x))
    return Encoded(tokens, x)


def _has_positions(config: Config) -> bool:
    return config.flag("position_biased_input", True)


def _embeddings(g: Graph, config: Config, w: Weights, tokens: Tokens) -> Value:
    width = embedding_size(config)
    x = embedding(g, w.at("word_embeddings"), tokens.ids, config.size("vocab_size"), width)
    if _has_positions(config):
        rows = config.size("max_position_embeddings")
        places = embedding(g, w.at("position_embeddings"), tokens.columns, rows, width)
        x = g.op("Add", x, places)
    x = typed(g, config, w, tokens, x)
    if width != config.size("hidden_size"):
        x = linear(g, w.at("embed_proj"), x)
    return norm(g, w.at("LayerNorm"), x, layer_norm_eps(config))


def _convolved(
    g: Graph, config: Config, w: Weights, tokens: Tokens, states: tuple[Value, Value]
) -> Value:
    """Add a convolution over neighbouring tokens.

    Args:
        states: what is convolved, and what that is added to.

    Shapes:
        states: both (tokens, features); returns: the same
    """
    neighbours, x = states
    hidden, kernel = config.size("hidden_size"), config.size("conv_kernel_size")
    groups, padding = config.size("conv_groups", 1), (kernel - 1) // 2
    weight = w.of_shape("conv.weight", hidden, hidden // groups, kernel)
    image = g.op("Transpose", tokens.restore(neighbours), perm=[0, 2, 1])
    image = g.op("Conv", image, weight, w["conv.bias"], pads=[padding, padding], group=groups)
    added = tokens.pack(g.op("Transpose", image, perm=[0, 2, 1]), hidden)
    added = activation(g, config.text("conv_act", "tanh"), added)
    return add_norm(g, w.at("LayerNorm"), x, added, layer_norm_eps(config))


def _text_classes(g: Graph, config: Config, encoded: Encoded) -> None:
    first = encoded.tokens.first(encoded.hidden)
    x = linear(g, Weights(g).at("pooler.dense"), first)
    heads.text_classes(g, activation(g, config.text("pooler_hidden_act", "gelu"), x), "classifier")


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    """By either of two heads, of which the younger has no layers of its own below `cls`."""
    w = Weights(g).first_of("cls.predictions", "lm_predictions.lm_head")
    act, eps = config.text("hidden_act", "gelu"), layer_norm_eps(config)
    transform = w.at("transform") if w.has_any("transform") else w
    x = heads.transformed(g, transform, encoded.hidden, act, eps)
    table = Weights(g).first_of("deberta", "").at("embeddings.word_embeddings")
    heads.tied_words(g, encoded, x, w, table)


FAMILY: Final = text_family(
    "deberta-v2",
    encode,
    {
        "DebertaV2Model": heads.states,
        "DebertaV2ForSequenceClassification": _text_classes,
        "DebertaV2ForTokenClassification": heads.token_classes,
        "DebertaV2ForMaskedLM": _masked_words,
    },
)
