"""Disentangled attention (He et al. 2020, https://arxiv.org/abs/2006.03654).

The score of a query and a key also counts how far apart they are: the query meets a vector that
stands for their distance (`c2p`), and so does the key (`p2c`). Distances are rows of a table; far
ones share rows.

Scores are computed by distance first, and only for distances that occur; see `_by_token`.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from snoozeml.prepare.safetensors.blocks import attention, linear, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.post_norm import layer_norm_eps
from snoozeml.prepare.safetensors.text import Tokens
from snoozeml.wire.tensors import Array

_FARTHEST: Final = 1 << 16  # distances; each has an entry in a table
_END: Final = np.iinfo(np.int64).max


class Disentangled:
    """Builds the attention of an encoder's layers.

    Args:
        w: the encoder's.
    """

    def __init__(self, g: Graph, config: Config, w: Weights, tokens: Tokens) -> None:
        self._g: Final = g
        self._tokens: Final = tokens
        self._heads: Final = config.size("num_attention_heads")
        self._one_projection: Final = config.flag("share_att_key", False)
        kinds = options(config, "pos_att_type")
        self._kinds: Final = [kind for kind in ("c2p", "p2c") if kind in kinds]
        self._size: Final = config.shared("hidden_size", "num_attention_heads")
        self._scale: Final = 1 / math.sqrt(self._size * (1 + len(self._kinds)))
        self._relative: Final = config.flag("relative_attention", False)
        if self._relative:
            self._length: Final = g.op("Shape", tokens.input_ids, start=1, end=2)
            self._find_distances(config, w)

    def attend(self, w: Weights, parts: Sequence[Value]) -> Value:
        """Attention in one layer.

        Args:
            w: of the layer's attention.

        Shapes:
            parts: queries, keys and values, each (tokens, features); returns: the same
        """
        q, k, v = map(self._tokens.pad, parts)
        mixed = attention(
            *(self._g, q, k, v),
            heads=self._heads,
            scale=self._scale,
            key_mask=self._tokens.key_mask,
            bias=self._bias(w, q, k) if self._relative and self._kinds else None,
        )
        return self._tokens.pack(mixed, self._size * self._heads)

    def _find_distances(self, config: Config, w: Weights) -> None:
        """Which distances occur: their part of the table, and each one's row in it."""
        g, row = self._g, self._rows(config)
        first = g.op("Slice", row, g.ints(0), g.ints(1))
        end = g.op("Add", g.op("Slice", row, g.ints(-1), g.ints(_END)), g.ints(1))
        height = 2 * (buckets_of(config) or farthest_distance(config))
        table = w.at("rel_embeddings").of_shape("weight", height, config.size("hidden_size"))
        self._table = g.op("Slice", table, first, end, g.ints(0))
        if "layer_norm" in options(config, "norm_rel_ebd"):
            self._table = norm(g, w.at("LayerNorm"), self._table, layer_norm_eps(config))
        self._upward = g.op("Sub", row, first)
        backwards = (g.ints(-1), g.ints(-_END), g.ints(0), g.ints(-1))
        self._downward = g.op("Slice", self._upward, *backwards)

    def _rows(self, config: Config) -> Value:
        """Of distances from -length to length. Shapes: returns: (2 * length + 1,)"""
        g, farthest = self._g, farthest_distance(config)
        rows = distance_rows(farthest, buckets_of(config))
        length, one = g.op("Squeeze", self._length), g.constant(1, np.int64)
        distances = g.op("Range", g.op("Neg", length), g.op("Add", length, one), one)
        bounds = (g.constant(bound, np.int64) for bound in (-farthest, farthest))
        place = g.op("Add", g.op("Clip", distances, *bounds), g.constant(farthest, np.int64))
        return g.op("Gather", g.constant(rows, np.int64), place)

    def _bias(self, w: Weights, q: Value, k: Value) -> Value:
        """What distances add to the scores. Shapes: returns: (batch, heads, queries, keys)"""
        scores = []
        if "c2p" in self._kinds:  # from left to right, keys come after the query: less distance
            scores.append(self._scores(q, self._projected(w, "key"), self._downward))
        if "p2c" in self._kinds:
            by_key = self._scores(k, self._projected(w, "query"), self._upward)
            scores.append(self._g.op("Transpose", by_key, perm=[0, 1, 3, 2]))
        return scores[0] if len(scores) == 1 else self._g.op("Add", *scores)

    def _projected(self, w: Weights, part: str) -> Value:
        name = f"{part}_proj" if self._one_projection else f"pos_{part}_proj"
        return linear(self._g, w.at(name), self._table)

    def _scores(self, x: Value, table: Value, rows: Value) -> Value:
        """Of all pairs of tokens.

        Shapes:
            x: (batch, length, features); table: (any, features); rows: (2 * length + 1,)
            returns: (batch, heads, length, length)
        """
        g, split = self._g, self._g.ints(0, 0, self._heads, -1)
        tokens = g.op("Transpose", g.op("Reshape", x, split), perm=[0, 2, 1, 3])
        table = g.op("Mul", table, g.constant(self._scale))
        split = g.ints(0, self._heads, -1)
        vectors = g.op("Reshape", g.op("Gather", table, rows), split)
        return self._by_token(g.op("MatMul", tokens, g.op("Transpose", vectors, perm=[1, 2, 0])))

    def _by_token(self, x: Value) -> Value:
        """Move the score of token i with distance d to the token i + d.

        Columns are distances from -length to length, so it has to go to the left by `length - i`,
        a place less in each row. Without the first `length` scores, read as one long row and cut
        into rows that are shorter by one, all are where they belong.

        Shapes:
            x: (batch, heads, length, 2 * length + 1); returns: (batch, heads, length, length)
        """
        g = self._g
        row = g.op("Reshape", x, g.ints(0, 0, -1))
        row = g.op("Slice", row, self._length, g.ints(_END), g.ints(2))
        shape = g.op("Concat", g.ints(0, 0), self._length, g.ints(-1), axis=0)
        return g.op("Slice", g.op("Reshape", row, shape), g.ints(0), self._length, g.ints(3))


def options(config: Config, key: str) -> list[str]:
    """A list of options, which configurations write as such or as one text with bars."""
    return [option.strip() for text in config.texts(key) for option in text.lower().split("|")]


def farthest_distance(config: Config) -> int:
    """Distances beyond it are as good as it."""
    if config.integer("max_relative_positions", -1) < 1:
        return config.size("max_position_embeddings", most=_FARTHEST)
    return config.size("max_relative_positions", most=_FARTHEST)


def buckets_of(config: Config) -> int | None:
    """How many rows distances share in either direction; None: each has one of its own."""
    if config.integer("position_buckets", -1) < 1:
        return None
    return config.size("position_buckets", most=_FARTHEST)


def distance_rows(farthest: int, buckets: int | None) -> Array:
    """The row of each distance from `-farthest` to `farthest`.

    Args:
        buckets: see `buckets_of`. One half of them is for single distances, the other for ranges
            that grow with distance.
    """
    distance = np.arange(-farthest, farthest + 1)
    span, half = buckets or farthest, (buckets or 0) // 2
    if 0 < half < farthest - 1:
        far = np.maximum(np.abs(distance), half).astype(np.float32)
        growth = np.log(far / half) / np.log(np.float32((farthest - 1) / half)) * (half - 1)
        ranged = (np.ceil(growth) + half).astype(np.int64)
        distance = np.where(np.abs(distance) <= half, distance, np.sign(distance) * ranged)
    return np.clip(distance + span, 0, 2 * span - 1)
