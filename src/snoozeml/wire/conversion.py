"""Arrays of one datatype to arrays of another, without loss."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from snoozeml.wire.json_values import Lossy
from snoozeml.wire.tensors import Array


def convert_array(array: Array, dtype: np.dtype[Any]) -> Array:
    """Make an array of another type, by the rules that `json_values.convert` has for JSON.

    Integers and floats become each other where the value stays the same. A float may be rounded to
    a shorter float, an integer may not. Only 0 and 1 become a bool.

    Raises:
        Lossy: for the first value that cannot be converted.
    """
    if array.dtype == dtype:
        return array
    if dtype.kind == "b":
        _refuse(array, (array != 0) & (array != 1), "true, false, 1 or 0 is wanted")
        return array.astype(dtype)
    return _CONVERTERS[_kind(array), _kind(np.empty(0, dtype))](array, dtype)


def _kind(array: Array) -> str:
    return "f" if array.dtype.kind == "f" else "i"


def _floats_to_floats(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        floats = array.astype(dtype)
    if dtype.itemsize < array.itemsize:
        _refuse(array, np.isinf(floats) & np.isfinite(array), "this number is too large")
    return floats


def _integers_to_floats(array: Array, dtype: np.dtype[Any]) -> Array:
    """An integer is exact where its bits, from the first to the last that is set, fit."""
    with np.errstate(over="ignore"):
        floats = array.astype(dtype)
    exact_bits = np.finfo(dtype).nmant + 1
    if array.itemsize * 8 > exact_bits:
        sizes = np.where(array < 0, 0 - array.astype(np.uint64), array.astype(np.uint64))
        lowest = sizes & (0 - sizes)
        inexact = sizes // np.maximum(lowest, np.uint64(1)) >> np.uint64(exact_bits) > 0
        why = "this integer has no exact equal among these floats"
        _refuse(array, inexact | np.isinf(floats), why)
    return floats


def _floats_to_integers(array: Array, dtype: np.dtype[Any]) -> Array:
    limits, doubles = np.iinfo(dtype), array.astype(np.float64)
    _refuse(array, doubles != np.trunc(doubles), "this number is not whole")  # NaN is neither
    # The limits as floats: the upper one is a power of 2, hence exact, and lies one beyond.
    outside = (doubles < float(limits.min)) | (doubles >= float(limits.max + 1))
    _refuse(array, outside, f"it lies outside {limits.min} to {limits.max}")
    return array.astype(dtype)


def _integers_to_integers(array: Array, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        outside = np.zeros(array.shape, np.bool_)
        if int(array.min()) < limits.min:
            outside |= array < limits.min
        if int(array.max()) > limits.max:
            outside |= array > limits.max
        _refuse(array, outside, f"it lies outside {limits.min} to {limits.max}")
    return array.astype(dtype)


def _refuse(array: Array, unwanted: Array, why: str) -> None:
    if unwanted.any():
        raise Lossy(array.ravel()[int(unwanted.argmax())].item(), why)


_CONVERTERS: Final[dict[tuple[str, str], Callable[[Array, np.dtype[Any]], Array]]] = {
    ("f", "f"): _floats_to_floats,
    ("f", "i"): _floats_to_integers,
    ("i", "f"): _integers_to_floats,
    ("i", "i"): _integers_to_integers,
}
