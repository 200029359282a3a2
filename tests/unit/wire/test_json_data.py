"""Numbers, text and nesting of the data in a JSON request."""

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.core.tensors import Datatype, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.json_data import DataReader
from snoozeml.wire.json_values import parse_exactly
from snoozeml.wire.tensors import DTYPES, Array

NUMERIC: list[Datatype] = [name for name in DTYPES if name != "BYTES"]  # type: ignore[misc]


def reader(datatype: Datatype) -> DataReader:
    return DataReader(TensorSpec("x", datatype, (None,)))


def read(datatype: Datatype, text: str, shape: list[int]) -> Array:
    array = reader(datatype).from_text(text.encode(), shape)
    assert array.dtype == DTYPES[datatype]
    assert array.shape == tuple(shape)
    return array


@pytest.mark.parametrize(
    ("datatype", "text", "values"),
    [
        ("FP32", "[1, 2.5, -3e2]", [1, 2.5, -300]),
        ("FP32", "[0.1, 16777217.0]", [np.float32(0.1), 2**24]),
        ("FP32", "[33554432, 1e30]", [2**25, np.float32(1e30)]),
        ("FP32", "[null, NaN, Infinity, -Infinity]", [np.nan, np.nan, np.inf, -np.inf]),
        ("FP16", "[0.1, 255, -2048, 65504.0]", [np.float16(0.1), 255, -2048, 65504]),
        ("FP64", "[0.1, 9007199254740992]", [0.1, 2**53]),
        ("INT64", "[101.0, -9223372036854775808]", [101, -(2**63)]),
        ("INT32", "[2147483647, -0.0]", [2**31 - 1, 0]),
        ("UINT8", "[0, 255, 3e1]", [0, 255, 30]),
        ("UINT64", "[18446744073709551615]", [2**64 - 1]),
        ("BOOL", "[true, false]", [True, False]),
        ("BOOL", "[1, 0, true, 0.0]", [True, False, True, False]),
        ("BYTES", '["", "gr\\u00fc\\u00df", "[嗨"]', ["", "grüß", "[嗨"]),
    ],
)
def test_values_that_lose_nothing_are_taken(
    datatype: Datatype, text: str, values: list[Any]
) -> None:
    array = read(datatype, text, [len(values)])
    np.testing.assert_array_equal(array, np.array(values, DTYPES[datatype]))


@pytest.mark.parametrize(
    ("datatype", "value", "words"),
    [
        ("FP32", "16777217", "16777217"),
        ("FP32", "1e39", "1e+39"),
        ("FP32", "1e999", "1E+999"),
        ("FP32", "9" * 5000, "9999…"),
        ("FP32", '"1"', '"1"'),
        ("FP32", "true", "true"),
        ("FP32", "{}", "an object"),
        ("FP16", "2049", "2049"),
        ("FP16", "65520.0", "65520.0"),
        ("FP64", "9007199254740993", "9007199254740993"),
        ("FP64", "9" * 400, "9999…"),
        ("INT64", "1.5", "1.5"),
        ("INT64", "9223372036854775808", "9223372036854775807"),
        ("INT64", "1e300", "1e+300"),
        ("INT64", "NaN", "NaN"),
        ("INT64", "-Infinity", "-Infinity"),
        ("INT64", "null", "null"),
        ("INT64", "true", "true"),
        ("INT64", "9" * 5000, "9999…"),
        ("INT8", "128", "-128 to 127"),
        ("UINT8", "-1", "0 to 255"),
        ("UINT64", "18446744073709551616", "18446744073709551616"),
        ("BOOL", "2", "2"),
        ("BOOL", "null", "null"),
        ("BOOL", '"true"', '"true"'),
        ("BYTES", "1", "1"),
        ("BYTES", "null", "null"),
        ("BYTES", '"\\ud800"', "surrogate"),
    ],
)
@pytest.mark.parametrize("many", [1, 300], ids=["few", "many"])
def test_what_would_lose_something_is_refused_by_name(
    datatype: Datatype, value: str, words: str, many: int
) -> None:
    good = '"a"' if datatype == "BYTES" else "1"
    text = f"[{', '.join([good] * (many - 1) + [value])}]"
    with pytest.raises(InvalidInput) as caught:
        read(datatype, text, [many])
    assert caught.value.code == "invalid_input"
    for word in ("'x'", datatype, words):
        assert word in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("[1, 2, 3, 4, 5, 6]", [2, 3]),
        ("[[1, 2, 3], [4, 5, 6]]", [2, 3]),
        ("[[[1], [2], [3]], [[4], [5], [6]]]", [2, 3, 1]),
        (" [ [ 1,2 , 3 ] ,\n[4,5,6] ]", [2, 3]),
        ("[[1.0, 2, 3], [4, 5, 6e0]]", [2, 3]),
    ],
)
@pytest.mark.parametrize("datatype", ["FP32", "INT64"])
def test_data_is_flat_or_nested_like_the_shape(
    datatype: Datatype, text: str, shape: list[int]
) -> None:
    assert read(datatype, text, shape).ravel().tolist() == [1, 2, 3, 4, 5, 6]


def test_text_may_be_nested_too() -> None:
    assert read("BYTES", '[["a"], ["],["]]', [2, 1]).tolist() == [["a"], ["],["]]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("[1, 2, 3]", [4]),
        ("[1, 2, 3]", [2]),
        ("[]", [1]),
        ("[1]", [0]),
        ("[[1, 2, 3], [4]]", [2, 2]),
        ("[[1, 2], [3]]", [2, 2]),
        ("[[1, 2], [3, 4]]", [1, 2, 2]),
        ("[[1, 2], [3, 4], [5, 6]]", [2, 3]),
        ("[[[1, 2], [3, 4]]]", [2, 2]),
        ("[[]]", [1, 1]),
        ("[1, [2, 3]]", [1, 3]),
        ("[[1, 2], 3]", [2, 2]),
        ("[1]", [2**62, 4]),
        ("[]", [0, 2**62, 2**62]),
    ],
)
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "BYTES"])
def test_data_that_does_not_fill_the_shape_is_a_mismatch(
    datatype: Datatype, text: str, shape: list[int]
) -> None:
    with pytest.raises(ShapeMismatch, match="shape mismatch: input 'x'"):
        read(datatype, text, shape)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("[[1]]", [1]),
        ("[1, [2, 3]]", [2]),
        ("null", [1]),
        ('"1"', [1]),
        ("{}", [1]),
        ("5", [1]),
        ("[" * 5000 + "]" * 5000, [1]),
    ],
)
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "BYTES"])
def test_data_of_another_form_is_refused(datatype: Datatype, text: str, shape: list[int]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(datatype, text, shape)
    assert caught.value.code == "invalid_input"


@pytest.mark.parametrize("datatype", ["FP32", "INT64"])
def test_many_numbers_in_ragged_lists_are_not_put_together(datatype: Datatype) -> None:
    ragged = json.dumps([[1] * 100, [1] * 300])
    with pytest.raises(ShapeMismatch):
        read(datatype, ragged, [2, 200])


def test_brackets_inside_text_are_no_lists() -> None:
    assert read("BYTES", '[[["[]"]]]', [1, 1, 1]).tolist() == [[["[]"]]]
    with pytest.raises(InvalidInput):
        read("BYTES", '[["[]"]]', [1, 1, 1])


@pytest.mark.parametrize("text", ["[5]", "5"])
def test_a_scalar_is_a_list_of_one_or_just_the_value(text: str) -> None:
    assert read("FP32", text, []).item() == 5


@pytest.mark.parametrize(("text", "shape"), [("[]", [0, 3]), ("[]", [2, 0]), ("[[], []]", [2, 0])])
@pytest.mark.parametrize("datatype", [*NUMERIC, "BYTES"])
def test_no_values_make_an_empty_array(datatype: Datatype, text: str, shape: list[int]) -> None:
    assert read(datatype, text, shape).size == 0


def test_a_shape_cannot_make_the_parser_build_what_memory_cannot_hold() -> None:
    for shape in ([10**12, 0], [0, 10**12], [10**6, 10**6]):
        with pytest.raises(ShapeMismatch):
            read("FP32", "[[1], [2]]", shape)


@pytest.mark.parametrize("given", ["FP32", "INT8", "BF16", "BOOL"])
def test_a_client_may_call_its_numbers_what_it_likes(given: str) -> None:
    reader("FP32").check_datatype(given)


@pytest.mark.parametrize(("wanted", "given"), [("FP32", "BYTES"), ("BYTES", "FP32")])
def test_text_and_numbers_are_not_each_other(wanted: Datatype, given: str) -> None:
    with pytest.raises(InvalidInput, match=f"'x' wants {wanted}, got datatype {given}"):
        reader(wanted).check_datatype(given)


@pytest.mark.parametrize("given", ["float32", "fp32", "FP8", ""])
def test_an_unknown_datatype_is_answered_with_those_known(given: str) -> None:
    with pytest.raises(InvalidInput, match=r"known are BOOL, .*BYTES"):
        reader("FP32").check_datatype(given)


json_numbers = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.sampled_from([0, 1, 2**24, 2**24 + 1, 2**53 + 1, 2**63, 2**64 - 1, 1e308, 65520.0]),
    st.booleans(),
    st.none(),
)


def outcome(call: Any) -> tuple[str, Any]:
    try:
        array = call()
    except InvalidInput as error:
        return error.code, error.message
    return "values", [str(value) for value in array.ravel()]


@given(
    datatype=st.sampled_from(NUMERIC),
    values=st.lists(json_numbers, min_size=1, max_size=6),
    repeats=st.sampled_from([1, 40]),
    columns=st.sampled_from([None, 1, 2, 3]),
)
def test_the_fast_road_takes_nothing_that_the_careful_one_would_read_otherwise(
    datatype: Datatype, values: list[Any], repeats: int, columns: int | None
) -> None:
    values = values * repeats
    shape = [len(values)]
    nested: Any = values
    if columns and len(values) % columns == 0:
        shape = [len(values) // columns, columns]
        nested = [values[i : i + columns] for i in range(0, len(values), columns)]
    text = json.dumps(nested).encode()
    fast = outcome(lambda: reader(datatype).from_text(text, shape))
    careful = outcome(lambda: reader(datatype).from_values(parse_exactly(text), shape))
    assert fast == careful


@given(st.lists(st.floats(width=32), max_size=50), st.integers(1, 4))
def test_every_float_survives(values: list[float], copies: int) -> None:
    values = values * copies
    array = read("FP32", json.dumps(values), [len(values)])
    for got, sent in zip(array.tolist(), values, strict=True):
        assert got == sent or (math.isnan(got) and math.isnan(sent))


@pytest.mark.parametrize("datatype", ["FP32", "FP64", "INT64", "UINT8", "BOOL"])
@pytest.mark.parametrize("separator", [",", " ,\n"])
def test_long_lists_are_read_like_short_ones(datatype: Datatype, separator: str) -> None:
    values = [n * n % 251 // (200 if datatype == "BOOL" else 1) for n in range(150_000)]
    texts = [str(bool(n)).lower() for n in values] if datatype == "BOOL" else list(map(str, values))
    wanted = np.array(values, DTYPES[datatype])
    flat = f"[{separator.join(texts)}]"
    np.testing.assert_array_equal(read(datatype, flat, [150_000]), wanted)
    rows = [f"[{separator.join(texts[n : n + 50])}]" for n in range(0, 150_000, 50)]
    nested = read(datatype, f"[{separator.join(rows)}]", [3000, 50])
    np.testing.assert_array_equal(nested, wanted.reshape(3000, 50))


@pytest.mark.parametrize(
    "odd",
    ["1e39", '"1,2"', "true", "9" * 300_000, "{}", '{"a":1,"b":2}', '"' + "," * 300_000 + '"'],
)
@pytest.mark.parametrize("place", [0, 40_000, 79_999])
@pytest.mark.parametrize("datatype", ["FP32", "INT64"])
def test_what_is_wrong_is_found_anywhere_in_a_long_list(
    datatype: Datatype, odd: str, place: int
) -> None:
    texts = ["12"] * 80_000
    texts[place] = odd
    with pytest.raises(InvalidInput, match=f"wants {datatype}, got"):
        read(datatype, f"[{','.join(texts)}]", [80_000])


def test_a_long_list_may_hold_what_takes_a_closer_look() -> None:
    for odd, value in (("null", np.nan), ("33554432", 2.0**25)):
        texts = ["1.5"] * 60_000 + [odd]
        array = read("FP32", f"[{','.join(texts)}]", [60_001])
        np.testing.assert_array_equal(array[-2:], np.array([1.5, value], np.float32))


def test_a_long_list_of_another_length_than_the_shape_says() -> None:
    with pytest.raises(ShapeMismatch, match="data has 80000"):
        read("FP32", f"[{','.join(['1.5'] * 80_000)}]", [80_001])


def test_nested_lists_are_compared_with_no_more_than_they_hold() -> None:
    shape = [400_000, *[1] * 63]
    text = f"[[{','.join(['1'] * 400_000)}]]".encode()
    tracemalloc.start()
    try:
        with pytest.raises(ShapeMismatch, match="on axis 0"):
            reader("FP32").from_text(text, shape)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(text)
