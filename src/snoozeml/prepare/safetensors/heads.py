"""What encoders of text answer with: their states, classes of texts or of tokens, or words."""

from collections.abc import Callable

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
    """`logits` of each text, from the encoder's pooler."""
    assert encoded.pooled is not None, "an architecture with this head has a pooler"
    text_classes(g, encoded.pooled, "classifier")


def text_classes(g: Graph, x: Value, classifier: str) -> None:
    """`logits` of each text. Shapes: x: (batch, features)"""
    w = Weights(g).at(classifier)
    text_output(g, "logits", linear(g, w, x), w.shape("weight")[0])


def words(g: Graph, encoded: Encoded, x: Value, embeddings: Weights, bias: Value | None) -> None:
    """`logits` of each word of the vocabulary at each token, by the table of input embeddings."""
    logits = g.op("Gemm", x, embeddings["weight"], bias, transB=1)
    token_output(g, "logits", encoded.tokens, logits, embeddings.shape("weight")[0])


def transformed(g: Graph, w: Weights, x: Value, act: str, eps: float) -> Value:
    """The `dense`, activation and `LayerNorm` before a layer of words."""
    return norm(g, w.at("LayerNorm"), activation(g, act, linear(g, w.at("dense"), x)), eps)
