"""JSON values to arrays, with a look at every value, so that nothing is lost without an error."""

import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from snoozeml.errors import InvalidInput
from snoozeml.wire.tensors import Array

_LONGEST_INTEGER: Final = 400
"""Digits; a longer integer is beyond every datatype, and converting it takes quadratic time."""

_SHOWN_CHARS: Final = 40
_NAME_CHARS: Final = 100
_SHOWN_NAMES: Final = 16


class Lossy(Exception):
    """A value that a datatype cannot hold; `why` says so in words that fit after the value."""

    def __init__(self, value: object, why: str) -> None:
        super().__init__(why)
        self.value = value
        self.why = why


def parse_exactly(text: bytes) -> Any:
    """Parse JSON into Python values of which no digit is lost; NaN and Infinity are accepted.

    A number beyond every datatype comes back as a `Decimal`, so that an error can show it.

    Raises:
        InvalidInput: it is not JSON in UTF-8, or nested too deeply.
    """
    try:
        return json.loads(text.decode(), parse_int=_parse_int, parse_float=_parse_float)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body must be JSON in UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("the body nests its JSON too deeply") from None


def _parse_int(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else Decimal(digits)


def _parse_float(digits: str) -> float | Decimal:
    value = float(digits)
    if math.isfinite(value):
        return value
    try:
        return Decimal(digits)
    except InvalidOperation:  # even its exponent is too large; any number beyond floats will do
        return Decimal("1e999").copy_sign(Decimal(value))


def shown(value: object) -> str:
    """A value as JSON writes it, at a length that fits into an error message."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        value = value[: _SHOWN_CHARS + 1]
    text = str(value) if isinstance(value, Decimal) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def quoted(*names: str) -> str:
    """Names in quotes, so many and so much of them as fit into an error message."""
    listed = ", ".join(map(_quoted, names[:_SHOWN_NAMES]))
    return (
        listed if len(names) <= _SHOWN_NAMES else f"{listed} and {len(names) - _SHOWN_NAMES} more"
    )


def _quoted(name: str) -> str:
    return repr(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…")


def convert(values: Sequence[object], dtype: np.dtype[Any]) -> Array:
    """Make an array of values without loss.

    Integers and floats become each other where the value stays the same. A float may be rounded to
    a shorter float, an integer may not. null is NaN among floats.

    Raises:
        Lossy: for the first value that cannot be converted.
    """
    return _CONVERTERS[dtype.kind](values, dtype)


def _to_floats(values: Sequence[object], dtype: np.dtype[Any]) -> Array:
    whole_limit = 2 ** (np.finfo(dtype).nmant + 1)  # every integer up to here is exact
    for value in values:
        kind = type(value)
        if kind is int:
            if abs(value) > whole_limit and not _is_exact(value, dtype):  # type: ignore[arg-type]
                raise Lossy(value, "this integer has no exact equal among these floats")
        elif kind is Decimal:
            raise Lossy(value, "this number is too large")
        elif kind is not float and value is not None:
            raise Lossy(value, "a number is wanted")
    doubles = np.array(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        floats = doubles.astype(dtype)
    overflowed = np.isinf(floats) & np.isfinite(doubles)
    if overflowed.any():
        raise Lossy(values[int(overflowed.argmax())], "this number is too large")
    return floats


def _is_exact(value: int, dtype: np.dtype[Any]) -> bool:
    try:
        with np.errstate(over="ignore"):
            nearest = float(np.array(float(value), dtype=dtype))
    except OverflowError:
        return False
    return math.isfinite(nearest) and int(nearest) == value


def _to_integers(values: Sequence[object], dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    integers = []
    for value in values:
        if type(value) is float and value.is_integer():
            integer = int(value)
        elif type(value) is int:
            integer = value
        elif type(value) is float:
            raise Lossy(value, "this number is not whole")
        elif type(value) is Decimal:
            raise Lossy(value, "this number is too large")
        else:
            raise Lossy(value, "a whole number is wanted")
        if not limits.min <= integer <= limits.max:
            raise Lossy(value, f"it lies outside {limits.min} to {limits.max}")
        integers.append(integer)
    return np.array(integers, dtype=dtype)


def _to_bools(values: Sequence[object], dtype: np.dtype[Any]) -> Array:
    for value in values:
        if value not in (0, 1):  # true and false are equal to them
            raise Lossy(value, "true, false, 1 or 0 is wanted")
    return np.array(values, dtype=dtype)


def _to_strings(values: Sequence[object], dtype: np.dtype[Any]) -> Array:
    for value in values:
        if type(value) is not str:
            raise Lossy(value, "a string is wanted")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise Lossy(value, "half a surrogate pair is not a character")
    return strings(values, dtype)


def strings(values: Sequence[object], dtype: np.dtype[Any]) -> Array:
    """An array of objects; numpy must not guess at what they are."""
    array = np.empty(len(values), dtype)
    array[:] = values
    return array


_CONVERTERS: Final[dict[str, Callable[[Sequence[object], np.dtype[Any]], Array]]] = {
    "f": _to_floats,
    "i": _to_integers,
    "u": _to_integers,
    "b": _to_bools,
    "O": _to_strings,
}
