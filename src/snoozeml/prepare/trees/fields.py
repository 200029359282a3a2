"""Fields of a parsed model file, with an error that names the field where one is not as it must be.

XGBoost writes its numbers as text where they are parameters, and as numbers where they are arrays.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from snoozeml.prepare.trees.forest import Array, Malformed

Fields = Mapping[str, Any]
_Kind = TypeVar("_Kind")


def part(fields: Fields, name: str) -> Fields:
    return _of_kind(fields, name, dict, "an object")


def list_of(fields: Fields, name: str) -> list[Any]:
    return _of_kind(fields, name, list, "a list")


def text(fields: Fields, name: str) -> str:
    return _of_kind(fields, name, str, "text")


def integer(fields: Fields, name: str, otherwise: int | None = None) -> int:
    """A whole number, written as a number or as text.

    Args:
        otherwise: what it is when it is missing; None: it must be there.
    """
    if otherwise is not None and name not in fields:
        return otherwise
    value = _present(fields, name)
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        raise Malformed(f"{name} is not a whole number: {str(value)[:40]!r}") from None


def numbers(fields: Fields, name: str, dtype: np.dtype[Any], count: int | None = None) -> Array:
    """A list of numbers as an array.

    Args:
        count: how many there must be; None: any number.
    """
    values = _present(fields, name)
    if not isinstance(values, list | np.ndarray):
        raise Malformed(f"{name} is not a list")
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype)
    except (ValueError, TypeError, OverflowError):
        raise Malformed(f"{name} holds something that is no number of type {dtype}") from None
    if array.ndim != 1:
        raise Malformed(f"{name} is not a flat list")
    if count is not None and len(array) != count:
        raise Malformed(f"{name} has {len(array)} entries, and there must be {count}")
    return array


def _of_kind(fields: Fields, name: str, kind: type[_Kind], called: str) -> _Kind:
    value = _present(fields, name)
    if not isinstance(value, kind):
        raise Malformed(f"{name} is not {called}")
    return value


def _present(fields: Fields, name: str) -> Any:
    if not isinstance(fields, dict):
        raise Malformed(f"an object with {name!r} is wanted where there is something else")
    if name not in fields:
        raise Malformed(f"{name} is missing")
    return fields[name]
