"""The `data` of a tensor in a JSON request, read into an array of the model's datatype.

There are two roads. The fast one reads JSON text with typed parsers and takes only what is certain
to lose nothing. Whatever it does not take goes down the careful one, which alone decides what is
accepted and words the errors.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any, Final, Literal, get_args

import msgspec
import numpy as np
import simdjson

from snoozeml.core.tensors import Datatype, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.bounds import check_bounds
from snoozeml.wire.json_values import Lossy, convert, parse_exactly, quoted, shown, strings
from snoozeml.wire.shapes import Shape
from snoozeml.wire.tensors import DTYPES, Array

_DATATYPES: Final[tuple[str, ...]] = get_args(Datatype)

_LARGE_BYTES: Final = 192
"""From this length on simdjson beats typed lists, in spite of its fixed cost (measured)."""

_PIECE_BYTES: Final = 128 * 1024
"""A longer list of numbers is read piece by piece. The parser keeps a dozen bytes for each byte of
the longest text that it has ever had; no other size is faster (measured from 16 KiB to 4 MiB)."""

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b"[],"))

_Read = Callable[[bytes], Array | None]
"""Reads a flat JSON list; None: something in it takes a closer look."""

_WIDEST: Final = {"d": np.float64, "i": np.int64, "u": np.uint64}
_parser: Final = simdjson.Parser()
_decode_floats: Final = msgspec.json.Decoder(list[float]).decode
_decode_integers: Final = msgspec.json.Decoder(list[int]).decode
_decode_bools: Final = msgspec.json.Decoder(list[bool]).decode
_decode_strings: Final = msgspec.json.Decoder(list[str]).decode

# What the typed parsers raise at values that are not of their type or not in its range.
_CloserLook: Final = (msgspec.DecodeError, TypeError, ValueError, OverflowError, RuntimeError)


def check_datatype(name: str, given: str) -> None:
    """Check that a client names a datatype that there is.

    Raises:
        InvalidInput: it does not.
    """
    if given not in _DATATYPES:
        known = ", ".join(_DATATYPES)
        raise InvalidInput(
            f"input {quoted(name)}: unknown datatype {quoted(given)}; known are {known}"
        )


class DataReader:
    """Reads the data of one input of a model.

    Args:
        verb: what goes between the input's name and its datatype in messages.
    """

    def __init__(self, spec: TensorSpec, verb: str = "wants") -> None:
        self._spec: Final = spec
        self._verb: Final = verb
        self._dtype: Final = DTYPES[spec.datatype]
        self._read: Final = _reader(self._dtype)

    def check_datatype(self, given: str) -> None:
        """Check what a client says its data is; numbers may become each other, text stays text.

        Raises:
            InvalidInput: the name is unknown, or one of the two is text and the other is not.
        """
        name, wanted = self._spec.name, self._spec.datatype
        check_datatype(name, given)
        if (given == "BYTES") != (wanted == "BYTES"):
            raise InvalidInput(f"input {quoted(name)} wants {wanted}, got datatype {given}")

    def default(self, shape: Shape) -> Array:
        """What an input is filled with that was left out."""
        return np.full(shape, 1 if self._spec.default == "ones" else 0, self._dtype)

    def read(self, data: object, shape: Shape) -> Array:
        """Read data that is JSON text still (`msgspec.Raw`), or what `parse_exactly` made of it.

        Raises:
            InvalidInput, ShapeMismatch: see `from_text`.
        """
        if isinstance(data, msgspec.Raw):
            return self.from_text(bytes(data), shape)
        return self.from_values(data, shape)

    def from_text(self, text: bytes, shape: Shape) -> Array:
        """Read data that is still JSON text: flat in row-major order, or nested like `shape`.

        Raises:
            InvalidInput: a value is not of the model's datatype and cannot become it without loss,
                or the model does not take it.
            ShapeMismatch: there are more or fewer values than the shape holds.
        """
        # Brackets in text need not be lists, so text is never taken apart by its brackets.
        is_flat = text.count(b"[") == 1 or self._dtype.hasobject
        flat = text if is_flat else _flattened(text, shape)
        array = None if flat is None else self._read(flat)
        if array is None or array.size != math.prod(shape):
            return self.from_values(parse_exactly(text), shape)
        return self._shaped(array, shape)

    def from_values(self, values: object, shape: Shape) -> Array:
        """Read data that `parse_exactly` made of JSON text; raises like `from_text`."""
        flat = self._flat(values, shape)
        try:
            return self._shaped(convert(flat, self._dtype), shape)
        except Lossy as loss:
            raise InvalidInput(
                f"input {quoted(self._spec.name)} {self._verb} {self._spec.datatype},"
                f" got {shown(loss.value)}: {loss.why}"
            ) from None

    def _shaped(self, array: Array, shape: Shape) -> Array:
        check_bounds(self._spec, array)
        try:
            return array.reshape(shape)
        except (ValueError, OverflowError):  # no value, but dimensions that numpy cannot count
            raise self._mismatch(shape, "has dimensions beyond all memory") from None

    def _flat(self, values: object, shape: Shape) -> list[Any]:
        if not isinstance(values, list):
            if not shape:
                return [values]
            name = self._spec.name
            raise InvalidInput(f"input {quoted(name)}: data must be a list, got {shown(values)}")
        if any(isinstance(value, list) for value in values):
            return self._unnested(values, shape)
        if len(values) != math.prod(shape):
            raise self._mismatch(shape, f"holds {math.prod(shape)} values, data has {len(values)}")
        return values

    def _unnested(self, values: list[Any], shape: Shape) -> list[Any]:
        """Take nested lists apart, axis by axis."""
        level: list[Any] = [values]
        for axis, size in enumerate(shape):
            for item in level:
                if not isinstance(item, list) or len(item) != size:
                    found = f"one of {len(item)}" if isinstance(item, list) else shown(item)
                    why = f"wants lists of {size} on axis {axis}, data has {found} there"
                    raise self._mismatch(shape, why)
            level = [value for item in level for value in item]
        return level

    def _mismatch(self, shape: Shape, why: str) -> ShapeMismatch:
        return ShapeMismatch(f"input {quoted(self._spec.name)}: the shape {list(shape)} {why}")


def _flattened(text: bytes, shape: Shape) -> bytes | None:
    """Lists of numbers as one flat list, still as text; None unless they nest exactly like `shape`.

    Numbers contain no brackets and no commas, so what remains when everything else is deleted tells
    the nesting. Where strings disturb that, the result is no list of numbers.
    """
    # The pattern is built only where it cannot be much longer than the text: axes of size 1 would
    # give it a pair of brackets for each value and axis.
    count = math.prod(shape)
    if len(shape) < 2 or not count or count > len(text):
        return None
    if len(shape) * count > 2 * len(text) and text.count(b"[") != _lists_in(shape):
        return None
    pattern = b"," * (shape[-1] - 1)
    for size in reversed(shape[:-1]):
        pattern = b",".join([b"[" + pattern + b"]"] * size)
    if text.translate(None, _NOT_STRUCTURE) != b"[" + pattern + b"]":
        return None
    return b"[" + text.translate(None, b"[]") + b"]"


def _lists_in(shape: Shape) -> int:
    return sum(accumulate(shape[:-1], mul, initial=1))


@cache
def _reader(dtype: np.dtype[Any]) -> _Read:
    if dtype.kind == "f":
        return _float_reader(dtype)
    if dtype.kind in "iu":
        return _integer_reader(dtype)
    return _bool_reader(dtype) if dtype.kind == "b" else _string_reader(dtype)


def _float_reader(dtype: np.dtype[Any]) -> _Read:
    # Below this every integer is exact, so it does not matter how a number was written.
    limit = float(2 ** (np.finfo(dtype).nmant + 1))

    def read(text: bytes) -> Array | None:
        try:
            if len(text) < _LARGE_BYTES:
                values = _decode_floats(text)
                is_exact = max(values) < limit and min(values) > -limit
                return np.array(values, dtype) if is_exact else None
            if len(text) > _PIECE_BYTES:
                return _in_pieces(text, read)
            array = _numbers(text, "d")
            is_exact = array.max() < limit and array.min() > -limit
            return array.astype(dtype, copy=False) if is_exact else None
        except _CloserLook:
            return None

    return read


def _integer_reader(dtype: np.dtype[Any]) -> _Read:
    limits = np.iinfo(dtype)
    kind: Literal["i", "u"] = "u" if limits.max > np.iinfo(np.int64).max else "i"

    def read(text: bytes) -> Array | None:
        try:
            if len(text) < _LARGE_BYTES:
                return np.array(_decode_integers(text), dtype)
            if len(text) > _PIECE_BYTES:
                return _in_pieces(text, read)
            array = _numbers(text, kind)
            fits = array.max() <= limits.max and array.min() >= limits.min
            return array.astype(dtype, copy=False) if fits else None
        except _CloserLook:
            return None

    return read


def _numbers(text: bytes, kind: Literal["d", "i", "u"]) -> Array:
    """The numbers of a list as doubles, signed or unsigned 64-bit integers."""
    parsed = _parser.parse(text)
    if not isinstance(parsed, simdjson.Array):
        raise TypeError("not a list")
    return np.frombuffer(parsed.as_buffer(of_type=kind), _WIDEST[kind])


def _in_pieces(text: bytes, read: _Read) -> Array | None:
    """Read a long list of numbers, cut at its commas; None: something takes a closer look.

    Where a comma is part of a text, `read` finds no number on either side.
    """
    if text[:1] != b"[" or text[-1:] != b"]":
        return None
    pieces: list[Array] = []
    start, end = 1, len(text) - 1
    while start < end:
        stop = end
        if end - start > _PIECE_BYTES - 2:  # with its brackets
            stop = text.rfind(b",", start, start + _PIECE_BYTES - 2)
        piece = read(b"[" + text[start:stop] + b"]") if stop > start else None
        if piece is None:
            return None
        pieces.append(piece)
        start = stop + 1
    return np.concatenate(pieces)


def _bool_reader(dtype: np.dtype[Any]) -> _Read:
    def read(text: bytes) -> Array | None:
        try:
            return np.array(_decode_bools(text), dtype)
        except msgspec.DecodeError:
            return None

    return read


def _string_reader(dtype: np.dtype[Any]) -> _Read:
    def read(text: bytes) -> Array | None:
        try:
            return strings(_decode_strings(text), dtype)
        except msgspec.DecodeError:
            return None

    return read
