"""ELECTRA (Clark et al. 2020, https://arxiv.org/abs/2003.10555)."""

from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.blocks import activation, linear
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Weights
from snoozeml.prepare.safetensors.post_norm import (
    Layers,
    embedding_size,
    embeddings,
    layer_norm_eps,
)
from snoozeml.prepare.safetensors.text import Encoded, token_inputs, token_scalar_output


def encode(g: Graph, config: Config) -> Encoded:
    w = Weights(g).first_of("electra", "")
    tokens = token_inputs(g, config, max_length=config.size("max_position_embeddings"))
    x = embeddings(g, config, w.at("embeddings"), tokens, tokens.columns)
    if embedding_size(config) != config.size("hidden_size"):
        x = linear(g, w.at("embeddings_project"), x)
    return Encoded(tokens, Layers(g, config, tokens).all(w.at("encoder.layer"), x))


def _replaced_tokens(g: Graph, config: Config, encoded: Encoded) -> None:
    """The discriminator: a number per token, above 0 where it seems not to be the original one."""
    w = Weights(g).at("discriminator_predictions")
    x = linear(g, w.at("dense"), encoded.hidden)
    x = activation(g, config.text("hidden_act", "gelu"), x)
    x = linear(g, w.at("dense_prediction"), x)
    token_scalar_output(g, "logits", encoded.tokens, x)


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    w = Weights(g)
    head = w.at("generator_predictions")
    x = heads.transformed(g, head, encoded.hidden, "gelu", layer_norm_eps(config))
    table = w.first_of("electra", "").at("embeddings.word_embeddings")
    heads.tied_words(g, encoded, x, w, table, "generator_lm_head")


FAMILY: Final = text_family(
    "electra",
    encode,
    {
        "ElectraModel": heads.states,
        "ElectraForSequenceClassification": heads.classes_of_first("gelu"),
        "ElectraForTokenClassification": heads.token_classes,
        "ElectraForMaskedLM": _masked_words,
        "ElectraForPreTraining": _replaced_tokens,
    },
)
