"""What a model may be called."""

import unicodedata
from typing import Final

MODEL_VERSION: Final = "1"
"""Of every model: there is one of each, the one that lies in its folder."""

_FORBIDDEN = frozenset("/\\")
_LONGEST = 255  # bytes of UTF-8: an id names folders and files
_LONGEST_TYPED: Final = 1024
"""Characters: no id has so many, in however many parts its characters come."""


def as_model_id(given: str) -> str:
    """The id that is meant, in whatever form its characters were typed.

    What is too long to be one is cut, and still too long: clients may send megabytes, and putting
    accents in order, as well as looking for a name that is nearly the same, is slow.
    """
    if len(given) > _LONGEST_TYPED:
        given = given[:_LONGEST_TYPED]
    return given if given.isascii() else unicodedata.normalize("NFC", given)


def why_bad_model_id(model_id: str) -> str | None:
    """Say what is wrong with a model id, or None when nothing is.

    An id is NFC text without `/`, `\\`, control characters or a leading dot: it appears in URLs,
    in file names and in logs, and must mean one thing in each.
    """
    if not model_id:
        return "it is empty"
    if len(model_id.encode("utf-8", "surrogatepass")) > _LONGEST:
        return f"it is longer than {_LONGEST} bytes"
    if model_id.startswith("."):
        return "it starts with a dot"
    if _FORBIDDEN.intersection(model_id):
        return "it contains a slash or a backslash"
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in model_id):
        return "it contains a control character"
    if model_id != unicodedata.normalize("NFC", model_id):
        return "it is not in Unicode normal form C"
    return None
