"""Tensors as raw bytes: little-endian, row-major; the form that gRPC and binary REST share."""

import math
import struct
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.json_values import quoted, strings
from snoozeml.wire.tensors import DTYPES, Array

_LENGTH: Final = struct.Struct("<I")
_BF16_BYTES: Final = 2
_IS_LITTLE: Final = sys.byteorder == "little"
_ON_THE_WIRE: Final = {name: dtype.newbyteorder("<") for name, dtype in DTYPES.items()}


def from_raw(name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview) -> Array:
    """Read a tensor; BF16 comes back as FP32, which holds all its values.

    Args:
        name: of the input, for messages.
        datatype: one of `core.tensors.Datatype`.

    Returns:
        A flat array; for all but BF16 and BYTES a read-only view of the data, if that is aligned.
        For BYTES its elements are `bytes`.

    Raises:
        ShapeMismatch: the data has another length than the shape wants.
        InvalidInput: a length inside BYTES is wrong.
    """
    count = math.prod(shape)
    if datatype == "BYTES":
        return _elements(name, shape, count, data)
    itemsize = _BF16_BYTES if datatype == "BF16" else _ON_THE_WIRE[datatype].itemsize
    if len(data) != count * itemsize:
        raise ShapeMismatch(
            f"input {quoted(name)}: the shape {list(shape)} of {datatype} takes"
            f" {count * itemsize} bytes, raw data has {len(data)}"
        )
    if datatype == "BF16":
        halves = np.frombuffer(data, "<u2").astype(np.uint32)
        return (halves << np.uint32(16)).view(np.float32)
    if datatype == "BOOL":
        return _bools(name, data)
    array = np.frombuffer(data, _ON_THE_WIRE[datatype])
    return array if array.flags.aligned else array.copy()


def to_raw(array: Array) -> bytes:
    """Write a tensor."""
    if not array.dtype.hasobject:
        return (array if _IS_LITTLE else array.byteswap()).tobytes()
    pieces: list[bytes] = []
    for value in as_bytes(array):
        pieces += (_LENGTH.pack(len(value)), value)
    return b"".join(pieces)


def as_bytes(array: Array) -> list[bytes]:
    """The elements of an array of text, in row-major order."""
    return [v.encode() if isinstance(v, str) else v for v in array.ravel().tolist()]


def to_texts(name: str, array: Array) -> Array:
    """Text of an array whose elements are bytes or text already.

    Raises:
        InvalidInput: an element is not UTF-8.
    """
    values = array.ravel().tolist()
    try:
        texts = [v if isinstance(v, str) else v.decode() for v in values]
    except UnicodeDecodeError:
        raise InvalidInput(f"input {quoted(name)}: text must be UTF-8") from None
    return strings(texts, array.dtype).reshape(array.shape)


def _bools(name: str, data: bytes | memoryview) -> Array:
    """One byte each; a byte that is neither 0 nor 1 would make a bool that is neither."""
    octets: Array = np.frombuffer(data, np.uint8)
    if octets.size and octets.max() > 1:
        raise InvalidInput(f"input {quoted(name)}: a BOOL is a byte of 0 or 1, got {octets.max()}")
    return octets.view(np.bool_)


def _elements(name: str, shape: Sequence[int], count: int, data: bytes | memoryview) -> Array:
    values: list[bytes] = []
    at = 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise _torn(name)
        (size,) = _LENGTH.unpack_from(data, at)
        start, at = at + _LENGTH.size, at + _LENGTH.size + size
        if at > len(data):
            raise _torn(name)
        values.append(bytes(data[start:at]))
    if len(values) != count:
        raise ShapeMismatch(
            f"input {quoted(name)}: the shape {list(shape)} holds {count} elements of BYTES,"
            f" raw data has {len(values)}"
        )
    return strings(values, DTYPES["BYTES"])


def _torn(name: str) -> InvalidInput:
    return InvalidInput(
        f"input {quoted(name)}: raw BYTES are elements of a length in four bytes and so many bytes;"
        " the data ends within one"
    )
