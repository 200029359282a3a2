"""MPNet (Song et al. 2020, https://arxiv.org/abs/2004.09297)."""

from typing import Final

import numpy as np

from snoozeml.prepare.safetensors import heads, roberta
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.post_norm import Layers, Names, embeddings, pooler
from snoozeml.prepare.safetensors.text import Encoded, Tokens, token_inputs
from snoozeml.wire.tensors import Array

_NAMES: Final = Names(
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    mix="attention.attn.o",
    mix_norm="attention.LayerNorm",
)
_PADDING: Final = 1  # whatever the configuration says
_BUCKETS: Final = 32
_FARTHEST: Final = 128  # all that are farther apart share a bucket


def encode(g: Graph, config: Config) -> Encoded:
    config.require("relative_attention_num_buckets", _BUCKETS)
    w = Weights(g).first_of("mpnet", "")
    longest = config.size("max_position_embeddings") - _PADDING - 1
    tokens = token_inputs(g, config, max_length=longest)
    places = roberta.positions(g, tokens, _PADDING)
    x = embeddings(g, config, w.at("embeddings"), tokens, places)
    bias = _bias(g, config, w.at("encoder.relative_attention_bias"), tokens)
    x = Layers(g, config, tokens, _NAMES, bias).all(w.at("encoder.layer"), x)
    return Encoded(tokens, x, pooler(g, w, tokens, x))


def _bias(g: Graph, config: Config, w: Weights, tokens: Tokens) -> Value:
    """What distance adds to the scores of attention. Shapes: returns: (1, heads, keys, keys)"""
    row, column = (g.op("Unsqueeze", tokens.positions, g.ints(axis)) for axis in (1, 0))
    far = (g.constant(distance, np.int64) for distance in (-_FARTHEST, _FARTHEST))
    distance = g.op("Clip", g.op("Sub", column, row), *far)
    index = g.op("Add", distance, g.constant(_FARTHEST, np.int64))
    bucket = g.op("Gather", g.constant(_buckets(), np.int64), index)
    table = w.of_shape("weight", _BUCKETS, config.size("num_attention_heads"))
    by_head = g.op("Gather", g.op("Transpose", table, perm=[1, 0]), bucket, axis=1)
    return g.op("Unsqueeze", by_head, g.ints(0))


def _buckets() -> Array:
    """The bucket of each distance, counted from `-_FARTHEST`.

    One half of the buckets is for keys before the query, the other for those after it; of each
    half, one half is for single distances, the other for ranges that grow with distance.
    """
    distance = np.arange(-_FARTHEST, _FARTHEST + 1)
    half, exact = _BUCKETS // 2, _BUCKETS // 4
    far = np.maximum(np.abs(distance), exact).astype(np.float32)
    growth = np.log(far / exact) / np.log(_FARTHEST / exact) * (half - exact)
    ranged = np.minimum(exact + growth.astype(np.int64), half - 1)
    bucket = np.where(np.abs(distance) < exact, np.abs(distance), ranged)
    return np.where(distance > 0, half + bucket, bucket)


FAMILY: Final = text_family(
    "mpnet",
    encode,
    {
        "MPNetModel": heads.states,
        "MPNetForSequenceClassification": heads.classes_of_first("tanh"),
        "MPNetForTokenClassification": heads.token_classes,
        "MPNetForMaskedLM": roberta.masked_words("mpnet"),
    },
)
