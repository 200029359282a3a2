"""Universal Binary JSON, as far as XGBoost writes it.

Specification: https://ubjson.org, draft 12. Arrays of one type are read into numpy arrays.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from snoozeml.prepare.trees.forest import Malformed

_DEEPEST: Final = 64  # a model of XGBoost nests about ten levels

_NUMBERS: Final[dict[bytes, np.dtype[Any]]] = {
    b"i": np.dtype(">i1"),
    b"U": np.dtype(">u1"),
    b"I": np.dtype(">i2"),
    b"l": np.dtype(">i4"),
    b"L": np.dtype(">i8"),
    b"d": np.dtype(">f4"),
    b"D": np.dtype(">f8"),
}
_CONSTANTS: Final = {b"Z": None, b"T": True, b"F": False}


def decode(data: bytes) -> Any:
    """Read one document.

    Raises:
        Malformed: it is not UBJSON, ends early, or claims to be longer than it is.
    """
    reader = _Reader(data)
    value = reader.value(reader.take(1), 0)
    if reader.at != len(data):
        raise Malformed(f"something follows the end of the UBJSON document at byte {reader.at}")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        self.at = 0
        self._containers: Final[dict[bytes, Callable[[int], Any]]] = {
            b"[": self._array,
            b"{": self._object,
        }

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self._data):
            left = len(self._data) - self.at
            raise Malformed(f"the file ends early: byte {self.at} announces {size}, {left} remain")
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def value(self, marker: bytes, depth: int) -> Any:
        if marker in _NUMBERS:
            return self._numbers(marker, 1)[0].item()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker == b"S":
            return self._text()
        if marker == b"C":
            return self.take(1).decode("latin-1")
        if marker not in self._containers:
            self._refuse(marker)
        if depth == _DEEPEST:
            raise Malformed(f"it nests more than {_DEEPEST} levels deep")
        return self._containers[marker](depth + 1)

    def _numbers(self, marker: bytes, count: int) -> Any:
        dtype = _NUMBERS[marker]
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def _text(self) -> str:
        try:
            return self.take(self._size()).decode()
        except UnicodeDecodeError:
            raise Malformed(f"the text that ends at byte {self.at} is not UTF-8") from None

    def _size(self) -> int:
        marker = self.take(1)
        if marker not in _NUMBERS or _NUMBERS[marker].kind == "f":
            self._refuse(marker)
        return int(self._numbers(marker, 1)[0])

    def _array(self, depth: int) -> Any:
        marker = self.take(1)
        if marker == b"$":
            kind, sign = self.take(1), self.take(1)
            if kind not in _NUMBERS or sign != b"#":
                self._refuse(kind + sign)
            return self._numbers(kind, self._size())
        if marker == b"#":
            return [self.value(self.take(1), depth) for _ in range(self._size())]
        items = []
        while marker != b"]":
            items.append(self.value(marker, depth))
            marker = self.take(1)
        return items

    def _object(self, depth: int) -> dict[str, Any]:
        found = {}
        while self._data[self.at : self.at + 1] != b"}":
            name = self._text()
            found[name] = self.value(self.take(1), depth)
        self.at += 1
        return found

    def _refuse(self, marker: bytes) -> NoReturn:
        raise Malformed(f"the bytes {marker!r} before byte {self.at} mean nothing here in UBJSON")
