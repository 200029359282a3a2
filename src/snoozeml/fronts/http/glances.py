"""Looking into the JSON of a body for one member, without parsing it where that is not there."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec


class Glance:
    """Finds one member of bodies.

    Args:
        key: its name.
        form: the struct of the part of a body that has it, and nothing else.
        given: what such a part says.
    """

    def __init__(self, key: str, form: type[Any], given: Callable[[Any], Any]) -> None:
        self._quoted: Final = f'"{key}"'.encode()
        self._plain: Final = re.compile(self._quoted + rb"\s*:\s*([0-9]+(?:\.[0-9]+)?)")
        self._decode: Final = msgspec.json.Decoder(form).decode
        self._given: Final = given

    def at(self, text: Sequence[bytes]) -> Any:
        """What a body says; None where it says nothing or cannot be read.

        Args:
            text: the JSON of the body, in pieces.
        """
        # Looking for the key is far cheaper than parsing a body in which it almost never is.
        if not _mentions(self._quoted, text):
            return None
        whole = b"".join(text)
        try:
            return self._given(self._decode(whole))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Not JSON, which the worker will tell; or JSON with NaN in it, which it will accept.
            plain = self._plain.search(whole)
            return float(plain[1]) if plain is not None else None


def _mentions(word: bytes, pieces: Sequence[bytes]) -> bool:
    """Whether a word stands in a text, of which 60 MiB need not be put together for that."""
    if len(pieces) == 1:  # as nearly all are
        return word in pieces[0]
    length, seam = len(word), b""
    for piece in pieces:
        if word in piece or (seam and word in seam + piece[:length]):
            return True
        seam = (seam + piece[-length:])[-length:]
    return False
