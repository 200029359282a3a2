"""RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692), XLM-RoBERTa and CamemBERT."""

from typing import Final

from onnx import TensorProto

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.post_norm import Layers, embeddings, layer_norm_eps, pooler
from snoozeml.prepare.safetensors.text import Encoded, Tokens, token_inputs


def encode(g: Graph, config: Config) -> Encoded:
    w = Weights(g).first_of("roberta", "")
    padding = config.integer("pad_token_id", 1, least=0)
    longest = config.size("max_position_embeddings") - padding - 1
    tokens = token_inputs(g, config, max_length=longest)
    x = embeddings(g, config, w.at("embeddings"), tokens, positions(g, tokens, padding))
    x = Layers(g, config, tokens).all(w.at("encoder.layer"), x)
    return Encoded(tokens, x, pooler(g, w, tokens, x))


def positions(g: Graph, tokens: Tokens, padding: int) -> Value:
    """Positions counted from `padding + 1` over words; padding, even amid a text, is at `padding`.

    Shapes:
        returns: (tokens,)
    """
    id_, axis = g.constant(padding, "int64"), g.constant(1, "int64")
    is_padding = g.op("Equal", tokens.input_ids, id_)
    is_word = g.op("Cast", g.op("Not", is_padding), to=TensorProto.INT64)
    counted = g.op("Mul", g.op("CumSum", is_word, axis), is_word)
    return tokens.pack(g.op("Add", counted, id_))


def masked_words(prefix: str) -> heads.Head:
    """Words by the head that RoBERTa brought in. Args: prefix: of the encoder."""

    def head(g: Graph, config: Config, encoded: Encoded) -> None:
        w = Weights(g).at("lm_head")
        x = heads.transformed(g, w, encoded.hidden, "gelu", layer_norm_eps(config))
        table = Weights(g).first_of(prefix, "").at("embeddings.word_embeddings")
        heads.tied_words(g, encoded, x, w, table)

    return head


FAMILIES: Final = tuple(
    text_family(
        model_type,
        encode,
        {
            f"{name}Model": heads.states,
            f"{name}ForSequenceClassification": heads.classes_of_first("tanh"),
            f"{name}ForTokenClassification": heads.token_classes,
            f"{name}ForMaskedLM": masked_words("roberta"),
        },
    )
    for model_type, name in (
        ("roberta", "Roberta"),
        ("xlm-roberta", "XLMRoberta"),
        ("camembert", "Camembert"),
    )
)
