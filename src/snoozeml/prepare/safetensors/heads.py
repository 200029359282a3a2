"""What encoders of text answer with: their states, classes of texts or of tokens, or words."""

from collections.abc import Callable

from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.blocks import activation, linear, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.text import Encoded, text_output, token_output

Head = Callable[[Graph, Config, Encoded], None]
"""Adds the outputs of an architecture to its encoder's graph."""


def states(g: Graph, config: Config, encoded: Encoded) -> None:
    """`last_hidden_state`, and `pooler_output` where there is a pooler."""
    features = config.size("hidden_size")
    token_output(g, "last_hidden_state", encoded.tokens, encoded.hidden, features)
    if encoded.pooled is not None:
        text_output(g, "pooler_output", encoded.pooled, features)


def token_classes(g: Graph, config: Config, encoded: Encoded) -> None:
    """`logits` of each token."""
    classifier = Weights(g).at("classifier")
    logits = linear(g, classifier, encoded.hidden)
    token_output(g, "logits", encoded.tokens, logits, classifier.shape("weight")[0])


def classes_of_pooled(g: Graph, config: Config, encoded: Encoded) -> None:
    """`logits` of each text, from the encoder's pooler.

    Raises:
        ModelFailed: there is none.
    """
    if encoded.pooled is None:
        raise ModelFailed("the checkpoint has no pooler, which the architecture's classifier needs")
    text_classes(g, encoded.pooled, "classifier")


def classes_of_first(act: str) -> Head:
    """`logits` of each text, from its first token through a dense layer and an activation."""

    def head(g: Graph, _: Config, encoded: Encoded) -> None:
        first = encoded.tokens.first(encoded.hidden)
        dense = linear(g, Weights(g).at("classifier.dense"), first)
        text_classes(g, activation(g, act, dense), "classifier.out_proj")

    return head


def text_classes(g: Graph, x: Value, classifier: str) -> None:
    """`logits` of each text. Shapes: x: (batch, features)"""
    w = Weights(g).at(classifier)
    text_output(g, "logits", linear(g, w, x), w.shape("weight")[0])


def words(g: Graph, encoded: Encoded, x: Value, embeddings: Weights, bias: Value | None) -> None:
    """`logits` of each word of the vocabulary at each token, by the table of input embeddings."""
    logits = g.op("Gemm", x, embeddings["weight"], bias, transB=1)
    token_output(g, "logits", encoded.tokens, logits, embeddings.shape("weight")[0])


def tied_words(
    g: Graph, encoded: Encoded, x: Value, w: Weights, table: Weights, decoder: str = "decoder"
) -> None:
    """Like `words`, with the table below `decoder` where the checkpoint has one there.

    Args:
        w: where `decoder` is, and the bias if it is not the decoder's own.
        table: of input embeddings.
    """
    own = w.at(decoder)
    bias = own["bias"] if "bias" in own else w["bias"]
    words(g, encoded, x, own if "weight" in own else table, bias)


def transformed(g: Graph, w: Weights, x: Value, act: str, eps: float) -> Value:
    """The dense layer, activation and normalisation before a layer of words."""
    x = activation(g, act, linear(g, w.at("dense"), x))
    return norm(g, w.first_of("LayerNorm", "layer_norm"), x, eps)
