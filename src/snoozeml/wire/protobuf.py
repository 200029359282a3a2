"""Protobuf's wire format, as far as one needs it to look into a message without decoding it.

The daemon reads only what routing needs, and a message may hold 60 MiB of tensors that nobody wants
copied; so fields are found by walking over them. Numbers of groups of bits and bytes are those of
https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from typing import Final

from snoozeml.errors import InvalidInput

Value = int | slice
"""A number as it is written, or where the bytes of a text, message or packed list lie."""

_VARINT: Final = 0
_FIXED64: Final = 1
_DELIMITED: Final = 2
_FIXED32: Final = 5

_LONGEST_BITS: Final = 70  # ten bytes of seven bits

_MOST_FIELDS: Final = 4096
"""In one message. Walking takes half a microsecond for each, on the daemon's only thread; a model
with so many tensors has not been seen."""


class Malformed(InvalidInput):
    """Bytes that are no protobuf message."""


def fields(data: bytes, where: slice | None = None) -> Iterator[tuple[int, Value]]:
    """Walk over the fields of a message, in the order in which they stand there.

    Args:
        where: the part of `data` that is the message; None: all of it.

    Raises:
        Malformed: it is no message.
        InvalidInput: it has too many fields.
    """
    at, end = (where.start, where.stop) if where is not None else (0, len(data))
    for _ in range(_MOST_FIELDS):
        if at >= end:
            return
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == _DELIMITED:
            size, at = _varint(data, at, end)
            start, at = at, at + size
            if at > end:
                raise _torn()
            yield number, slice(start, at)
        elif kind == _VARINT:
            value, at = _varint(data, at, end)
            yield number, value
        elif kind in (_FIXED64, _FIXED32):
            start, at = at, at + (8 if kind == _FIXED64 else 4)
            if at > end:
                raise _torn()
            yield number, int.from_bytes(data[start:at], "little")
        else:
            raise Malformed(f"the message is not valid protobuf: wire type {kind}")
    raise InvalidInput(f"the message has more than {_MOST_FIELDS} fields")


def text(data: bytes, value: Value) -> str:
    """A text field's value.

    Raises:
        Malformed: it is no text.
    """
    if isinstance(value, slice):
        try:
            return data[value].decode()
        except UnicodeDecodeError:
            pass
    raise Malformed("the message is not valid protobuf: text is wanted, in UTF-8")


def number(value: Value) -> int:
    """A number field's value.

    Raises:
        Malformed: it is no number.
    """
    if isinstance(value, slice):
        raise Malformed("the message is not valid protobuf: a number is wanted")
    return value


def signed(value: int) -> int:
    """What a number of a type that may be negative stands for, other than `sint32` and `sint64`."""
    return value - 2**64 if value >= 2**63 else value


def tag(field: int) -> bytes:
    """What a text, bytes or message field begins with; its size in `varint` and itself follow."""
    return varint(field << 3 | _DELIMITED)


def varint(value: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    if value < len(_SMALL):
        return _SMALL[value]
    return bytes((value & 0x7F | 0x80,)) + varint(value >> 7)


_SMALL: Final = [bytes((value,)) for value in range(0x80)]


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where the next byte lies."""
    if at < end and (value := data[at]) < 0x80:  # as most are
        return value, at + 1
    value = shift = 0
    while at < end and shift < _LONGEST_BITS:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise _torn()


def _torn() -> Malformed:
    return Malformed("the message is not valid protobuf: it ends within a field")
