"""DistilBERT (Sanh et al. 2019, https://arxiv.org/abs/1910.01108)."""

from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.blocks import activation, linear, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Weights
from snoozeml.prepare.safetensors.post_norm import Layers, Names, embeddings, layer_norm_eps
from snoozeml.prepare.safetensors.text import Encoded, token_inputs

_NAMES: Final = Names(
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    mix="attention.out_lin",
    mix_norm="sa_layer_norm",
    widen="ffn.lin1",
    narrow="ffn.lin2",
    norm="output_layer_norm",
)


def encode(g: Graph, config: Config) -> Encoded:
    w = Weights(g).first_of("distilbert", "")
    tokens = token_inputs(g, config, max_length=config.size("max_position_embeddings"))
    x = embeddings(g, config, w.at("embeddings"), tokens, tokens.columns)
    return Encoded(tokens, Layers(g, config, tokens, _NAMES).all(w.at("transformer.layer"), x))


def _text_classes(g: Graph, _: Config, encoded: Encoded) -> None:
    first = encoded.tokens.first(encoded.hidden)
    x = activation(g, "relu", linear(g, Weights(g).at("pre_classifier"), first))
    heads.text_classes(g, x, "classifier")


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    w = Weights(g)
    x = linear(g, w.at("vocab_transform"), encoded.hidden)
    x = activation(g, config.text("hidden_act", "gelu"), x)
    x = norm(g, w.at("vocab_layer_norm"), x, layer_norm_eps(config))
    table = w.first_of("distilbert", "").at("embeddings.word_embeddings")
    heads.tied_words(g, encoded, x, w, table, "vocab_projector")


FAMILY: Final = text_family(
    "distilbert",
    encode,
    {
        "DistilBertModel": heads.states,
        "DistilBertForSequenceClassification": _text_classes,
        "DistilBertForTokenClassification": heads.token_classes,
        "DistilBertForMaskedLM": _masked_words,
    },
    names={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "hidden_act": "activation",
    },
)
