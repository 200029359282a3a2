"""Layers that many architectures share, made of a checkpoint's tensors under their usual names."""

from collections.abc import Callable, Sequence
from typing import Final

from snoozeml.errors import UnsupportedArchitecture
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights


def linear(g: Graph, w: Weights, x: Value) -> Value:
    """`x @ weight.T + bias`, the bias being optional.

    Shapes:
        x: (rows, in); weight: (out, in); returns: (rows, out)
    """
    weight = w.of_shape("weight", None, None)
    bias = w.of_shape("bias", w.shape("weight")[0]) if "bias" in w else None
    return g.op("Gemm", x, weight, bias, transB=1)


def linears(g: Graph, w: Weights, names: Sequence[str], x: Value, parts: int) -> list[Value]:
    """Several linear layers of the same input, which some checkpoints keep as one.

    Args:
        names: of each layer, or of the one that holds them all, one after the other.
    """
    outputs = [linear(g, w.at(name), x) for name in names]
    if len(outputs) == parts:
        return outputs
    return g.ops("Split", (*outputs,), parts, axis=-1, num_outputs=parts)


def mlp(g: Graph, first: Weights, act: str, second: Weights, x: Value) -> Value:
    """Two linear layers with an activation between them. Shapes: x, returns: (rows, features)"""
    return linear(g, second, activation(g, act, linear(g, first, x)))


def norm(g: Graph, w: Weights, x: Value, eps: float) -> Value:
    """Layer normalisation over the last axis; the bias is optional."""
    scale, bias = scale_and_bias(w)
    return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=eps)


def add_norm(g: Graph, w: Weights, x: Value, skip: Value, eps: float) -> Value:
    """Layer normalisation of `x + skip`.

    Shapes:
        x, skip: (rows, features) or (batch, rows, features)
    """
    scale, bias = scale_and_bias(w)
    return g.op("SkipLayerNormalization", x, skip, scale, bias, epsilon=eps)


def scale_and_bias(w: Weights) -> tuple[Value, Value | None]:
    """Of a normalisation; the oldest checkpoints say gamma and beta."""
    scale, bias = ("gamma", "beta") if "gamma" in w else ("weight", "bias")
    return w.of_shape(scale, None), w.of_shape(bias, *w.shape(scale)) if bias in w else None


def embedding(
    g: Graph, w: Weights, ids: Value, rows: int | None = None, features: int | None = None
) -> Value:
    """Rows of a table.

    Args:
        rows, features: what the table has, according to the configuration.

    Shapes:
        ids: any; returns: (*ids, features)
    """
    return g.op("Gather", w.of_shape("weight", rows, features), ids, axis=0)


def attention(
    g: Graph,
    q: Value,
    k: Value,
    v: Value,
    *,
    heads: int,
    scale: float = 0.0,
    **optional: Value | None,
) -> Value:
    """Scaled dot-product attention of all heads.

    Args:
        scale: of the scores; 0: one over the root of a head's size.
        optional: `key_mask`, int32 (batch, keys), 0 where a key is not seen; `bias`, float32
            (1 or batch, 1 or heads, queries, keys), added to the scores.

    Shapes:
        q: (batch, queries, heads * size); k, v: (batch, keys, heads * size); returns: like q
    """
    return g.op(
        "MultiHeadAttention",
        *(q, k, v, None),
        optional.get("key_mask"),
        optional.get("bias"),
        num_heads=heads,
        scale=scale,
        mask_filter_value=LOWEST,
    )


def causal_attention(
    g: Graph, q: Value, k: Value, v: Value, *, heads: int, key_mask: Value
) -> Value:
    """Attention in which no query sees later keys; arguments as those of `attention`."""
    return g.op(
        "MultiHeadAttention",
        *(q, k, v, None, key_mask),
        num_heads=heads,
        mask_filter_value=LOWEST,
        unidirectional=1,
    )


LOWEST: Final = -3.4028234663852886e38
"""The lowest float32: what it is added to has no weight after a softmax."""


def activation(g: Graph, name: str, x: Value) -> Value:
    """An activation function under the name that configurations give it.

    Raises:
        UnsupportedArchitecture: there is none of this name.
    """
    if name not in _ACTIVATIONS:
        known = ", ".join(sorted(_ACTIVATIONS))
        raise UnsupportedArchitecture(
            f"config.json: the activation {name!r} is not supported; known: {known}"
        )
    return _ACTIVATIONS[name](g, x)


def _one(kind: str, **attributes: str) -> Callable[[Graph, Value], Value]:
    return lambda g, x: g.op(kind, x, **attributes)


def _silu(g: Graph, x: Value) -> Value:
    return g.op("Mul", x, g.op("Sigmoid", x))


def _relu_squared(g: Graph, x: Value) -> Value:
    positive = g.op("Relu", x)
    return g.op("Mul", positive, positive)


_GELU: Final = _one("Gelu")
_GELU_TANH: Final = _one("FastGelu")

_ACTIVATIONS: Final[dict[str, Callable[[Graph, Value], Value]]] = {
    "gelu": _GELU,
    "gelu_python": _GELU,
    "gelu_new": _GELU_TANH,
    "gelu_fast": _GELU_TANH,
    "gelu_pytorch_tanh": _GELU_TANH,
    "quick_gelu": _one("QuickGelu"),
    "relu": _one("Relu"),
    "relu2": _relu_squared,
    "leaky_relu": _one("LeakyRelu"),
    "elu": _one("Elu"),
    "softmax": _one("Softmax"),
    "silu": _silu,
    "swish": _silu,
    "tanh": _one("Tanh"),
    "sigmoid": _one("Sigmoid"),
    "linear": lambda _, x: x,
}
