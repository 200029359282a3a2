"""Arrays change their datatype only where nothing is lost."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.wire.conversion import convert_array
from snoozeml.wire.json_values import Lossy, convert
from snoozeml.wire.tensors import DTYPES

NUMBERS = [name for name in DTYPES if name not in ("BYTES", "BOOL")]
EDGES = [
    *(0, 1, -1, 101, 127, 128, 255, 256, 2047, 2049, 65504, 65536, 2**24, 2**24 + 1, -(2**24) - 1),
    *(2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**62 + 2**40, 2**63 - 1, -(2**63), 2**63, 2**64 - 1),
]


def _holds(datatype: str, value: float) -> bool:
    dtype = DTYPES[datatype]
    if dtype.kind == "f":
        return bool(np.isfinite(dtype.type(value))) and float(dtype.type(value)) == value
    return value == int(value) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("wanted", NUMBERS)
@pytest.mark.parametrize("given_as", NUMBERS)
def test_every_edge_is_kept_or_refused_as_it_would_be_in_json(given_as: str, wanted: str) -> None:
    for value in EDGES:
        if not _holds(given_as, value):
            continue
        array = np.array([value], DTYPES[given_as])
        # JSON's rules, of which this is the fast form; a float of JSON has a point.
        spelled: Any = float(value) if array.dtype.kind == "f" else value
        try:
            expected = convert([spelled], DTYPES[wanted])
        except Lossy:
            with pytest.raises(Lossy):
                convert_array(array, DTYPES[wanted])
        else:
            converted = convert_array(array, DTYPES[wanted])
            assert converted.dtype == DTYPES[wanted]
            np.testing.assert_array_equal(converted, expected)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_an_integer_among_floats_is_exact_or_refused(values: list[int]) -> None:
    try:
        floats = convert_array(np.array(values, np.int64), np.dtype(np.float32)).tolist()
    except Lossy:
        floats = None
    exact = [int(np.float32(value)) == value for value in values]
    assert (floats == values) if all(exact) else (floats is None)


@pytest.mark.parametrize(
    ("array", "wanted", "why"),
    [
        (np.array([1.0, 1.5], np.float32), "INT64", "not whole"),
        (np.array([np.nan], np.float32), "INT64", "not whole"),
        (np.array([np.inf], np.float32), "INT64", "outside"),
        (np.array([2.0**63]), "INT64", "outside"),
        (np.array([1, 2], np.int32), "BOOL", "true, false"),
        (np.array([np.nan]), "BOOL", "true, false"),
        (np.array([1e39]), "FP32", "too large"),
        (np.array([300], np.int32), "INT8", "outside -128 to 127"),
        (np.array([-1], np.int32), "UINT64", "outside"),
        (np.array([2**64 - 1], np.uint64), "INT64", "outside"),
        (np.array([16777217], np.int64), "FP32", "no exact equal"),
    ],
)
def test_what_would_be_lost_is_named(array: Any, wanted: str, why: str) -> None:
    with pytest.raises(Lossy, match=why):
        convert_array(array, DTYPES[wanted])


def test_not_a_number_stays_one_and_bools_are_0_and_1() -> None:
    assert np.isnan(convert_array(np.array([np.nan], np.float32), DTYPES["FP16"]))[0]
    assert convert_array(np.array([True, False]), DTYPES["FP32"]).tolist() == [1.0, 0.0]
    assert convert_array(np.array([1.0, 0.0]), DTYPES["BOOL"]).tolist() == [True, False]


def test_nothing_is_copied_that_need_not_be() -> None:
    array = np.zeros(3, np.float32)
    assert convert_array(array, DTYPES["FP32"]) is array


@pytest.mark.parametrize("wanted", [*NUMBERS, "BOOL"])
def test_no_elements_become_no_elements(wanted: str) -> None:
    assert convert_array(np.empty((0, 2), np.int64), DTYPES[wanted]).shape == (0, 2)
