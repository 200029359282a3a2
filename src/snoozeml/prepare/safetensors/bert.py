"""BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805)."""

from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Weights
from snoozeml.prepare.safetensors.post_norm import Layers, embeddings, layer_norm_eps, pooler
from snoozeml.prepare.safetensors.text import Encoded, token_inputs


def encode(g: Graph, config: Config) -> Encoded:
    w = Weights(g).first_of("bert", "model", "")
    tokens = token_inputs(g, config, max_length=config.size("max_position_embeddings"))
    x = embeddings(g, config, w.at("embeddings"), tokens, tokens.columns)
    x = Layers(g, config, tokens).all(w.at("encoder.layer"), x)
    return Encoded(tokens, x, pooler(g, w, tokens, x))


def masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    """`logits` of words, by the head of BERT and of those built like it."""
    w = Weights(g).at("cls.predictions")
    act, eps = config.text("hidden_act", "gelu"), layer_norm_eps(config)
    x = heads.transformed(g, w.at("transform"), encoded.hidden, act, eps)
    table = Weights(g).first_of("bert", "").at("embeddings.word_embeddings")
    heads.tied_words(g, encoded, x, w, table)


FAMILY: Final = text_family(
    "bert",
    encode,
    {
        "BertModel": heads.states,
        "BertForSequenceClassification": heads.classes_of_pooled,
        "BertForTokenClassification": heads.token_classes,
        "BertForMaskedLM": masked_words,
    },
)
