"""Texts as token ids: what a text model takes, and how it computes on real tokens only.

Texts of a batch differ in length and are padded to the longest. Nearly all the work of an encoder
is in its linear layers, to which the tokens are independent rows: there the padding is left out.
Only attention needs to know which tokens belong to one text, so just around it they are padded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import TensorProto

from snoozeml.core.tensors import TensorSpec
from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.blocks import attention
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value

_SHAPE: Final = ("batch", "sequence")


@dataclass(frozen=True)
class Encoded:
    """A text model's work before its head.

    Attributes:
        hidden: (tokens, features), of the last layer.
        pooled: (batch, features), where the architecture has a pooler and the checkpoint, too.
    """

    tokens: "Tokens"
    hidden: Value
    pooled: Value | None = None


class Tokens:
    """The real tokens of a batch of padded texts.

    A text's first position counts as real even if its mask says otherwise: some heads read it. For
    attention it is masked all the same.

    Attributes:
        input_ids: (batch, sequence), padded.
        positions: (sequence,), counted from 0.
        ids: (tokens,)
        columns: (tokens,), the position of each token in its text.
        key_mask: int32 (batch, sequence), for `blocks.attention`.
        mask: bool (batch, sequence).
    """

    def __init__(self, g: Graph, input_ids: Value, attention_mask: Value) -> None:
        self._g: Final = g
        self.input_ids: Final = input_ids
        self.key_mask: Final = g.op("Cast", attention_mask, to=TensorProto.INT32)
        self.mask: Final = g.op("Cast", attention_mask, to=TensorProto.BOOL)
        self._shape: Final = g.op("Shape", input_ids)
        sequence = g.op("Squeeze", g.op("Shape", input_ids, start=1, end=2))
        zero, one = (g.constant(value, np.int64) for value in (0, 1))
        self.positions: Final = g.op("Range", zero, sequence, one)
        kept = g.op("Or", self.mask, g.op("Equal", self.positions, zero))
        flat = g.op("Reshape", kept, g.ints(-1))
        self._index: Final = g.op("Squeeze", g.op("NonZero", flat), g.ints(0))
        counted = g.op("CumSum", g.op("Cast", flat, to=TensorProto.INT64), zero)
        self._inverse: Final = g.op("Reshape", g.op("Sub", counted, one), self._shape)
        self.ids: Final = self.pack(input_ids)
        self.columns: Final = self.pack(g.op("Expand", self.positions, self._shape))

    def pack(self, x: Value, features: int | None = None) -> Value:
        """Leave the padding out.

        Shapes:
            x: (batch, sequence) or, if `features` is given, (batch, sequence, features)
            returns: (tokens,) or (tokens, features)
        """
        shape = (-1,) if features is None else (-1, features)
        flat = self._g.op("Reshape", x, self._g.ints(*shape))
        return self._g.op("Gather", flat, self._index, axis=0)

    def pad(self, x: Value) -> Value:
        """Put tokens where they belong; what is at other places has no meaning.

        Shapes:
            x: (tokens, *features); returns: (batch, sequence, *features)
        """
        return self._g.op("Gather", x, self._inverse, axis=0)

    def restore(self, x: Value) -> Value:
        """Put tokens where they belong, among zeros.

        Shapes:
            x: (tokens, features); returns: (batch, sequence, features)
        """
        mask = self._g.op("Unsqueeze", self.mask, self._g.ints(2))
        return self._g.op("Where", mask, self.pad(x), self._g.constant(0.0))

    def first(self, x: Value) -> Value:
        """What each text has at its first position.

        Shapes:
            x: (tokens, features); returns: (batch, features)
        """
        first = self._g.op("Gather", self._inverse, self._g.constant(0, np.int64), axis=1)
        return self._g.op("Gather", x, first, axis=0)

    def end(self, *, last: bool) -> Value:
        """The first or last position that the mask keeps; any where it keeps none.

        Shapes:
            returns: (batch, 1)
        """
        return self._g.op("ArgMax", self.key_mask, axis=1, keepdims=1, select_last_index=int(last))

    def at(self, x: Value, positions: Value) -> Value:
        """What each text has at one position; the token before, where the mask does not keep it.

        Shapes:
            x: (tokens, features); positions: (batch, 1); returns: (batch, features)
        """
        index = self._g.op("GatherElements", self._inverse, positions, axis=1)
        return self._g.op("Gather", x, self._g.op("Squeeze", index, self._g.ints(1)), axis=0)

    def mean(self, x: Value) -> Value:
        """Of what is where the mask says so; zeros where it says so nowhere.

        Shapes:
            x: (tokens, features); returns: (batch, features)
        """
        return self._g.op("Div", self.sum(x), self.count())

    def sum(self, x: Value) -> Value:
        """Shapes: x: (tokens, features); returns: (batch, features)"""
        return self._g.op("ReduceSum", self.restore(x), self._g.ints(1), keepdims=0)

    def count(self) -> Value:
        """How many of each text the mask keeps, but at least one. Shapes: returns: (batch, 1)"""
        kept = self._g.op("Cast", self.mask, to=TensorProto.FLOAT)
        counted = self._g.op("ReduceSum", kept, self._g.ints(1), keepdims=1)
        return self._g.op("Max", counted, self._g.constant(1.0))


@dataclass(frozen=True)
class SelfAttention:
    """Of every token to those of its text.

    Attributes:
        features: of all heads together.
        bias: added to the scores, as `blocks.attention` takes it.
    """

    heads: int
    features: int
    bias: Value | None = None

    def attend(self, g: Graph, tokens: Tokens, parts: Sequence[Value]) -> Value:
        """Shapes: parts: queries, keys and values, each (tokens, features); returns: the same"""
        q, k, v = map(tokens.pad, parts)
        mask = tokens.key_mask
        mixed = attention(g, q, k, v, heads=self.heads, key_mask=mask, bias=self.bias)
        return tokens.pack(mixed, self.features)


def token_inputs(
    g: Graph, config: Config, *, max_length: int | None = None, group: str | None = None
) -> Tokens:
    """Declare `input_ids` and `attention_mask`, which is all ones when it is not given.

    Raises:
        ModelFailed: there is no room for any token.
    """
    if max_length is not None and max_length < 1:
        raise ModelFailed("config.json: max_position_embeddings leaves no room for any token")
    ids = TensorSpec(
        "input_ids",
        "INT64",
        _SHAPE,
        batch_axis=0,
        ragged_axis=1,
        min_length=1,
        max_length=max_length,
        bounds=(0, config.size("vocab_size")),
        group=group,
    )
    mask = TensorSpec(
        "attention_mask",
        "INT64",
        _SHAPE,
        batch_axis=0,
        ragged_axis=1,
        bounds=(0, 2),
        default="ones",
        group=group,
    )
    return Tokens(g, g.input(ids), g.input(mask))


def token_types(g: Graph, tokens: Tokens, kinds: int) -> Value:
    """Declare `token_type_ids`, zeros when not given. Shapes: returns: (tokens,)"""
    spec = TensorSpec(
        "token_type_ids",
        "INT64",
        _SHAPE,
        batch_axis=0,
        ragged_axis=1,
        bounds=(0, kinds),
        default="zeros",
    )
    return tokens.pack(g.input(spec))


def token_output(g: Graph, name: str, tokens: Tokens, x: Value, features: int) -> None:
    """Answer with a vector per token. Shapes: x: (tokens, features)"""
    spec = TensorSpec(name, "FP32", (*_SHAPE, features), batch_axis=0, ragged_axis=1)
    g.output(spec, tokens.restore(x))


def token_scalar_output(g: Graph, name: str, tokens: Tokens, x: Value) -> None:
    """Answer with a number per token. Shapes: x: (tokens, 1)"""
    spec = TensorSpec(name, "FP32", _SHAPE, batch_axis=0, ragged_axis=1)
    g.output(spec, g.op("Squeeze", tokens.restore(x), g.ints(2)))


def text_output(g: Graph, name: str, x: Value, features: int, group: str | None = None) -> None:
    """Answer with a vector per text. Shapes: x: (batch, features)"""
    g.output(TensorSpec(name, "FP32", ("batch", features), batch_axis=0, group=group), x)
