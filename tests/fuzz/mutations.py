"""Inputs that are almost right: valid ones, damaged with their structure in view.

Random bytes are refused at the first of them. What is found by fuzzing is mostly found by one wrong
number in a file that is right otherwise.
"""

import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import strategies as st

Json = Any
Change = tuple[int, int, int]
"""What to do, where, and with what: each is taken modulo what there is."""


def _changes(drawn: bytes) -> list[Change]:
    return list(struct.iter_unpack("<BHB", drawn[: len(drawn) // 4 * 4]))


changes: Final = st.binary(min_size=4, max_size=16).map(_changes)
"""Some changes, from a single draw: most of the time goes into drawing."""

_NUMBERS: Final = (
    0, 1, 2, 7, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1,
    2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip

_TOKENS: Final = (
    b"", b"0", b"-1", b"1e400", b"nan", b"NaN", b"inf", b"-Infinity", b"null", b"true", b"1.5",
    b"99999999999999999999999", b"2147483648", b"9223372036854775807", b"\x00", b"\xff\xfe", b"\n",
    b"\r\n\r\n", b"=", b"[", b"]", b"{", b"}", b'"', b"\\", b"..", b"/", b"../../etc/passwd",
    b"\xc3\xa9", b"\xed\xa0\x80", b"x" * 300, b"[" * 300, b'"\\ud800"', b"#", b",", b":", b" ",
)  # fmt: skip

_VALUES: Final[tuple[Json, ...]] = (
    None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e300, float("nan"), float("inf"), 2**31, 2**63,
    2**64, 10**40, -(2**63), 16777217, "", "0", "x", "é", "\x00", "a/b", "..", "../../x", "/etc",
    "x" * 300, "nan", "FP32", "INT64", "BYTES", [], [[]], [0], [None], ["x"], [1.5, 2], {},
    {"a": 1}, {"": None}, [[[[[[[[0]]]]]]]], [0] * 300,
)  # fmt: skip


def damaged_bytes(seed: bytes, changes: Sequence[Change]) -> bytes:
    """A file with bytes changed, inserted, removed and repeated."""
    data = bytearray(seed)
    for what, where, value in changes:
        _BYTE_CHANGES[what % len(_BYTE_CHANGES)](data, where * len(data) // 65536, value)
    return bytes(data)


def _overwrite_number(data: bytearray, at: int, value: int) -> None:
    size = (1, 2, 4, 8)[value % 4]
    order: Any = ("little", "big")[value // 4 % 2]
    number = _NUMBERS[value // 8 % len(_NUMBERS)] % (1 << 8 * size)
    data[at : at + size] = number.to_bytes(size, order)


def _set_byte(data: bytearray, at: int, value: int) -> None:
    data[at : at + 1] = bytes((value,))


def _flip(data: bytearray, at: int, value: int) -> None:
    if data:
        data[at] ^= 1 << value % 8


def _insert(data: bytearray, at: int, value: int) -> None:
    data[at:at] = _TOKENS[value % len(_TOKENS)]


def _remove(data: bytearray, at: int, value: int) -> None:
    del data[at : at + 1 + value % 64]


def _repeat(data: bytearray, at: int, value: int) -> None:
    data[at:at] = data[at : at + 1 + value]


def _cut_off(data: bytearray, at: int, value: int) -> None:
    del data[at:]


_BYTE_CHANGES: Final[tuple[Callable[[bytearray, int, int], None], ...]] = (
    _overwrite_number, _set_byte, _flip, _insert, _remove, _repeat, _cut_off, _overwrite_number,
)  # fmt: skip

_BETWEEN_WORDS: Final = re.compile(rb"([\s=,:;\[\]{}\"'/()]+)")


def damaged_text(seed: bytes, changes: Sequence[Change]) -> bytes:
    """A text with words replaced, removed, repeated and swapped."""
    words = _BETWEEN_WORDS.split(seed)
    for what, where, value in changes:
        at = where * len(words) // 65536
        match what % 5:
            case 0 | 1:
                words[at : at + 1] = [_TOKENS[value % len(_TOKENS)]]
            case 2:
                del words[at : at + 1 + value % 8]
            case 3:
                words[at:at] = words[at : at + 1 + value % 32]
            case 4 if words:
                other = (at + value) % len(words)
                words[at], words[other] = words[other], words[at]
        words = words or [b""]
    return b"".join(words)


def damaged_json(seed: Json, changes: Sequence[Change]) -> Json:
    """A document with values replaced, removed, repeated and put elsewhere."""
    document = _copy(seed)
    for what, where, value in changes:
        places = list(_places(document))
        if not places:
            return document
        holder, key = places[where % len(places)]
        _change_place(holder, key, what, value, places)
    return document


def _change_place(
    holder: Json, key: Any, what: int, value: int, places: list[tuple[Json, Any]]
) -> None:
    match what % 8:
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]]
        case 2 if isinstance(holder, list):
            holder[key:key] = (_copy(holder[key]) for _ in range(1 + value % 50))
        case 2:
            holder[f"{key}{value}"] = holder.pop(key)
        case 3:
            other, name = places[value % len(places)]
            holder[key] = _copy(other[name])
        case 4 if isinstance(holder[key], (int, float)):
            holder[key] += value - 128
        case _:
            holder[key] = _copy(_VALUES[value % len(_VALUES)])


def _copy(document: Json) -> Json:
    return json.loads(json.dumps(document))


def _places(node: Json) -> Any:
    """Each value of a document, as what holds it and its key there."""
    if isinstance(node, (dict, list)):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from _places(node[key])


def as_json(document: Json) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def as_ubjson(node: Json) -> bytes:
    """As UBJSON writes it; numbers that it has no type for become strings."""
    match node:
        case None | True | False:
            return {None: b"Z", True: b"T", False: b"F"}[node]
        case int() if abs(node) < 2**63:
            return struct.pack(">cq", b"L", node)
        case float():
            return struct.pack(">cd", b"D", node)
        case list():
            return b"[" + b"".join(map(as_ubjson, node)) + b"]"
        case dict():
            members = (_ubjson_text(key) + as_ubjson(value) for key, value in node.items())
            return b"{" + b"".join(members) + b"}"
        case _:
            return b"S" + _ubjson_text(str(node))


def _ubjson_text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return struct.pack(">cq", b"L", len(raw)) + raw
