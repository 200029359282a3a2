"""Requests to a model that does not say what it takes and gives."""

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.tensors import Array, NamedArrays, names_of

OPEN = Signature((), (), open_inputs=True, open_outputs=True)


def decode(**tensor: Any) -> Array:
    body = json.dumps({"inputs": [{"name": "x", **tensor}]}).encode()
    return JsonV1("m", OPEN).decode(body).inputs["x"]


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1.5, 2.5], np.float32),
        ([1, 2], np.float32),
        ([None, 2], np.float32),
        ([[1], [2]], np.float32),
        (["a", "b"], object),
        ([["a"], ["["]], object),
        ([True, False], np.bool_),
        ([False, True], np.bool_),
    ],
)
def test_without_a_datatype_the_values_tell(data: list[Any], dtype: Any) -> None:
    shape = np.array(data, object).shape
    array = decode(shape=shape, data=data)
    assert array.dtype == dtype
    assert array.shape == shape


def test_long_lists_are_read_alike() -> None:
    array = decode(shape=[100, 10], data=list(range(1000)))
    np.testing.assert_array_equal(array, np.arange(1000, dtype=np.float32).reshape(100, 10))


@pytest.mark.parametrize("datatype", ["INT64", "FP64", "UINT8", "FP16", "INT32"])
def test_a_named_datatype_is_kept(datatype: str) -> None:
    array = decode(shape=[2], data=[1, 2], datatype=datatype)
    assert array.tolist() == [1, 2]
    assert array.dtype.name.upper().replace("FLOAT", "FP") == datatype


def test_bf16_is_taken_as_fp32_which_holds_all_its_values() -> None:
    array = decode(shape=[2], data=[1, 2.5], datatype="BF16")
    assert array.dtype == np.float32
    assert array.tolist() == [1, 2.5]


def test_nan_goes_in() -> None:
    body = b'{"inputs": [{"name": "x", "shape": [2], "data": [NaN, 1]}]}'
    np.testing.assert_array_equal(JsonV1("m", OPEN).decode(body).inputs["x"], [np.nan, 1])


def test_empty_tensors_are_floats() -> None:
    assert decode(shape=[0, 3], data=[]).shape == (0, 3)


def test_a_whole_number_that_floats_cannot_hold_asks_for_its_datatype() -> None:
    with pytest.raises(InvalidInput, match=r"got 16777217: .*read as FP32, so name another"):
        decode(shape=[1], data=[16777217])
    assert decode(shape=[1], data=[16777217], datatype="INT64").tolist() == [16777217]


@pytest.mark.parametrize(
    ("tensor", "error", "words"),
    [
        ({"shape": [2], "data": [1, "a"]}, InvalidInput, "read as FP32, so name another"),
        ({"shape": [1], "data": ["a"], "datatype": "FP32"}, InvalidInput, "a number is wanted"),
        ({"shape": [1], "data": [1], "datatype": "x"}, InvalidInput, "known are BOOL.*, BF16"),
        ({"shape": [3], "data": [1]}, ShapeMismatch, "holds 3 values, data has 1"),
        ({"shape": [0, 10**9], "data": []}, ShapeMismatch, "no dimension may be larger"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tensor: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        decode(**tensor)


def test_an_input_may_be_there_only_once() -> None:
    x = {"name": "x", "shape": [1], "data": [1]}
    with pytest.raises(InvalidInput, match="'x' is there more than once"):
        JsonV1("m", OPEN).decode(json.dumps({"inputs": [x, x]}).encode())


def test_any_outputs_may_be_asked_for_and_none_means_all() -> None:
    codec = JsonV1("m", OPEN)
    assert codec.decode(b'{"inputs": []}').outputs == ()
    assert codec.decode(b'{"inputs": [], "outputs": ["b", "a"]}').outputs == ("b", "a")
    with pytest.raises(InvalidInput, match="some of what the model gives, each once"):
        codec.decode(b'{"inputs": [], "outputs": ["a", "a"]}')


def test_declared_outputs_are_checked_though_inputs_are_open() -> None:
    codec = JsonV1("m", Signature((), (TensorSpec("y", "FP32", ()),), open_inputs=True))
    with pytest.raises(InvalidInput, match="unknown output 'z'; the model gives 'y'"):
        codec.decode(b'{"inputs": [], "outputs": ["z"]}')


def test_answers_carry_the_datatypes_of_their_arrays() -> None:
    text = np.array(["é", b"\xff"], object)
    arrays = NamedArrays(["a", "b", "c"], [np.arange(2), np.ones((1, 1), np.float32), text])
    answer = json.loads(JsonV1("m", OPEN).encode(names_of(arrays, ()), arrays, None, 0.0))
    assert [(o["name"], o["datatype"], o["shape"]) for o in answer["outputs"]] == [
        ("a", "INT64", [2]), ("b", "FP32", [1, 1]), ("c", "BYTES", [2]),
    ]  # fmt: skip


def test_no_name_that_a_client_has_chosen_is_kept() -> None:
    name = "x" * 1_000_003
    body = json.dumps({"inputs": [{"name": name, "shape": [1], "data": [1]}]}).encode()
    codec = JsonV1("m", OPEN)
    tracemalloc.start()
    try:
        codec.decode(body)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < len(name)
