import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.oip_framing import mark, unmarked
from snoozeml.wire.oip_rest import OipRest
from snoozeml.wire.raw import to_raw
from snoozeml.wire.tensors import DTYPES, Array, Inference

Json = dict[str, Any]

NUMBERS = [name for name in DTYPES if name != "BYTES"]
OPEN = Signature((), (), open_inputs=True, open_outputs=True)
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4)


def echo(datatype: str, rank: int = 2) -> OipRest:
    """`x` in, `y` out, with rows on the first axis."""
    batch_axis = 0 if rank else None
    return OipRest(
        "m",
        Signature(
            (TensorSpec("x", datatype, (None,) * rank, batch_axis),),  # type: ignore[arg-type]
            (TensorSpec("y", datatype, (None,) * rank, batch_axis),),  # type: ignore[arg-type]
        ),
    )


def framed(body: Json, binary: bytes | None = None) -> bytes:
    text = json.dumps(body).encode()
    return mark(None if binary is None else len(text)) + text + (binary or b"")


def x(shape: list[Any], datatype: str = "FP32", **more: Any) -> Json:
    return {"name": "x", "shape": shape, "datatype": datatype, **more}


def binary_x(array: Array, datatype: str, **more: Any) -> bytes:
    """A request whose only tensor is binary, and so shall be the answer."""
    raw = to_raw(array)
    tensor = x(list(array.shape), datatype, parameters={"binary_data_size": len(raw)})
    return framed({"inputs": [tensor], "parameters": {"binary_data_output": True}, **more}, raw)


def answer(codec: OipRest, inference: Inference, array: Array) -> tuple[Json, bytes]:
    """The JSON of an answer, and what follows it."""
    json_bytes, body = unmarked(codec.encode(["y"], [array], inference.reply_as, 0.0))
    text = body[:json_bytes]
    return json.loads(bytes(text)), bytes(body[len(text) :])


@given(st.data(), st.sampled_from(NUMBERS))
def test_numbers_come_through_binary_bit_by_bit(data: st.DataObject, datatype: str) -> None:
    shape = data.draw(st_numpy.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4))
    array = data.draw(st_numpy.arrays(DTYPES[datatype], shape))
    codec = echo(datatype)
    inference = codec.decode(binary_x(array, datatype, id="a"))
    assert inference.inputs["x"].dtype == DTYPES[datatype]
    assert inference.inputs["x"].tobytes() == array.tobytes()
    head, raw = answer(codec, inference, inference.inputs["x"])
    assert raw == array.tobytes()
    assert head == {
        "model_name": "m",
        "model_version": "1",
        "id": "a",
        "outputs": [
            {
                "name": "y",
                "datatype": datatype,
                "shape": list(shape),
                "parameters": {"binary_data_size": len(raw)},
            }
        ],
    }


@given(st.data(), st.sampled_from(NUMBERS), st.booleans())
def test_numbers_come_through_json(data: st.DataObject, datatype: str, nested: bool) -> None:
    shape = data.draw(st_numpy.array_shapes(min_dims=2, max_dims=2, max_side=4))
    array = data.draw(st_numpy.arrays(DTYPES[datatype], shape))
    codec = echo(datatype)
    values = array.tolist() if nested else array.ravel().tolist()
    inference = codec.decode(framed({"inputs": [x(list(shape), datatype, data=values)]}))
    np.testing.assert_array_equal(inference.inputs["x"], array)
    head, raw = answer(codec, inference, inference.inputs["x"])
    (output,) = head["outputs"]
    assert raw == b""
    assert "id" not in head
    returned = [math.nan if value is None else value for value in output["data"]]
    finite = np.where(np.isfinite(array), array, np.nan) if array.dtype.kind == "f" else array
    np.testing.assert_array_equal(np.array(returned, array.dtype), finite.ravel())


@given(TEXTS)
def test_text_comes_through_in_both_forms(texts: list[str]) -> None:
    codec = echo("BYTES", rank=1)
    array = np.empty(len(texts), object)
    array[:] = texts
    for body in (
        framed({"inputs": [x([len(texts)], "BYTES", data=texts)]}),
        binary_x(array, "BYTES"),
    ):
        inference = codec.decode(body)
        assert inference.inputs["x"].tolist() == texts
        head, raw = answer(codec, inference, array)
        (output,) = head["outputs"]
        assert output["data"] == texts if "data" in output else raw == to_raw(array)


def test_text_that_is_not_utf8_is_binary_or_base64() -> None:
    codec = echo("BYTES", rank=1)
    array = np.array([b"\xff", "é"], object)
    inference = codec.decode(framed({"inputs": [x([1], "BYTES", data=["a"])]}))
    (output,) = answer(codec, inference, array)[0]["outputs"]
    assert output["data"] == ["/w==", "w6k="]
    assert output["parameters"] == {"content_type": "base64"}
    inference = codec.decode(binary_x(np.array(["a"], object), "BYTES"))
    assert answer(codec, inference, array)[1] == b"\x01\0\0\0\xff\x02\0\0\0\xc3\xa9"


def test_a_scalar_and_a_tensor_without_elements() -> None:
    scalar = echo("FP32", rank=0)
    inference = scalar.decode(framed({"inputs": [x([], data=[1.5])]}))
    assert inference.inputs["x"].shape == ()
    inference = scalar.decode(binary_x(np.array(1.5, np.float32), "FP32"))
    assert inference.inputs["x"] == 1.5
    assert answer(scalar, inference, inference.inputs["x"])[0]["outputs"][0]["shape"] == []
    empty = echo("FP32").decode(binary_x(np.zeros((0, 4), np.float32), "FP32"))
    assert empty.inputs["x"].shape == (0, 4)


def test_bf16_is_taken_as_numbers_and_in_binary() -> None:
    codec = echo("FP32")
    inference = codec.decode(framed({"inputs": [x([1, 2], "BF16", data=[1.5, -2])]}))
    assert inference.inputs["x"].tolist() == [[1.5, -2]]
    tensor = x([1, 2], "BF16", parameters={"binary_data_size": 4})
    inference = codec.decode(framed({"inputs": [tensor]}, b"\xc0\x3f\x00\xc0"))
    assert inference.inputs["x"].dtype == np.float32
    assert inference.inputs["x"].tolist() == [[1.5, -2]]


def test_numbers_that_json_lacks() -> None:
    body = b'{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [%s]}]}'
    codec = echo("FP32")
    inference = codec.decode(mark(None) + body % b"NaN, null, -Infinity")
    np.testing.assert_array_equal(inference.inputs["x"], [[np.nan, np.nan, -np.inf]])
    head, _ = answer(codec, inference, inference.inputs["x"])
    assert head["outputs"][0]["data"] == [None, None, None]


def test_numbers_become_the_datatype_of_the_model_if_nothing_is_lost() -> None:
    codec = echo("INT64")
    inference = codec.decode(framed({"inputs": [x([1, 2], "FP32", data=[1, 2])]}))
    assert inference.inputs["x"].dtype == np.int64
    with pytest.raises(InvalidInput, match=r"'x' wants INT64, got FP32 1.5"):
        codec.decode(framed({"inputs": [x([1, 1], "FP32", data=[1.5])]}))


def test_binary_data_that_begins_at_an_odd_place_is_aligned() -> None:
    array = np.arange(4, dtype=np.float64).reshape(1, 4)
    for length in range(8):
        inference = echo("FP64").decode(binary_x(array, "FP64", id="a" * length))
        assert inference.inputs["x"].flags.aligned


def two_outputs() -> OipRest:
    outputs = (TensorSpec("a", "FP32", (None, 3), 0), TensorSpec("b", "FP32", (None, 3), 0))
    return OipRest("m", Signature((TensorSpec("x", "FP32", (None, 1), 0),), outputs))


def test_each_output_has_the_form_that_was_asked_for() -> None:
    codec = two_outputs()
    outputs = [
        {"name": "b", "parameters": {"binary_data": False}},
        {"name": "a", "parameters": {"classification": 2}},
    ]
    body = {"inputs": [x([1, 1], data=[0])], "outputs": outputs}
    inference = codec.decode(framed({**body, "parameters": {"binary_data_output": True}}))
    assert inference.outputs == ("b", "a")
    scores = np.array([[0.25, 0.5, 0.125]], np.float32)
    encoded = codec.encode(inference.outputs, [scores, scores], inference.reply_as, 0.0)
    json_bytes, content = unmarked(encoded)
    b, a = json.loads(bytes(content[:json_bytes]))["outputs"]
    assert b == {"name": "b", "datatype": "FP32", "shape": [1, 3], "data": [0.25, 0.5, 0.125]}
    assert (a["datatype"], a["shape"], "data" in a) == ("BYTES", [1, 2], False)
    texts = np.array(["0.500000:1", "0.250000:0"], object)
    assert bytes(content[json_bytes:]) == to_raw(texts)


def test_what_a_model_has_not_declared_comes_as_it_is() -> None:
    codec = OipRest("m", OPEN)
    inference = codec.decode(framed({"inputs": [x([2], "INT8", data=[1, 2])]}))
    assert inference.inputs["x"].dtype == np.int8
    assert inference.outputs == ()
    head, _ = answer(codec, inference, np.array([3], np.uint16))
    assert head["outputs"] == [{"name": "y", "datatype": "UINT16", "shape": [1], "data": [3]}]


def raw_request(data: bytes) -> bytes:
    return mark(0) + data


@pytest.mark.parametrize(
    ("dims", "data", "shape"),
    [
        ((None, 2), b"\0" * 24, (3, 2)),
        ((None, 2), b"", (0, 2)),
        ((None, None), b"\0" * 12, (1, 3)),
        ((1, 2), b"\0" * 16, (2, 2)),
    ],
)
def test_a_body_without_json_is_one_tensor(
    dims: tuple[int | None, ...], data: bytes, shape: tuple[int, ...]
) -> None:
    codec = OipRest(
        "m",
        Signature((TensorSpec("x", "FP32", dims, 0),), (TensorSpec("y", "FP32", dims, 0),)),
    )
    inference = codec.decode(raw_request(data))
    assert inference.inputs["x"].shape == shape
    assert answer(codec, inference, np.zeros((1, 1), np.float32))[1] == b"\0\0\0\0"


def test_text_without_json_is_one_element() -> None:
    inference = echo("BYTES", rank=1).decode(raw_request("é".encode()))
    assert inference.inputs["x"].tolist() == ["é"]


def test_a_body_without_json_needs_one_input_whose_shape_it_tells() -> None:
    with pytest.raises(ShapeMismatch, match="takes 4 bytes"):
        echo("FP32").decode(raw_request(b"12345"))
    with pytest.raises(ShapeMismatch, match="cannot say"):
        echo("FP32", rank=3).decode(raw_request(b"1234"))
    with pytest.raises(InvalidInput, match="has not declared"):
        OipRest("m", OPEN).decode(raw_request(b"1234"))
    inputs = (TensorSpec("a", "FP32", (1,)), TensorSpec("b", "FP32", (1,)))
    with pytest.raises(InvalidInput, match="takes 'a', 'b'"):
        OipRest("m", Signature(inputs, ())).decode(raw_request(b"1234"))


ONE = [1.0]
GOOD: Json = {"inputs": [x([1, 1], data=ONE)]}


@pytest.mark.parametrize(
    ("body", "binary", "words"),
    [
        ({}, None, r"inputs"),
        ({"inputs": 1}, None, r"\$\.inputs"),
        ({"inputs": []}, None, "missing in inputs: 'x'"),
        ({"inputs": [x([1, 1])]}, None, "neither data nor binary_data_size"),
        ({"inputs": [x(["1", 1], data=ONE)]}, None, r"\$\.inputs\[0\]\.shape\[0\]"),
        ({"inputs": [x([-1, 1], data=ONE)]}, None, "shape mismatch.*never negative"),
        ({"inputs": [x([1, 2], data=ONE)]}, None, "shape mismatch.*holds 2 values, data has 1"),
        ({"inputs": [x([2**62, 2**62], data=ONE)]}, None, "shape mismatch"),
        ({"inputs": [x([1] * 100, data=ONE)]}, None, "shape mismatch"),
        ({"inputs": [x([0, 2**62], data=[])]}, None, "shape mismatch"),
        ({"inputs": [x([1, 1], "FP8", data=ONE)]}, None, "unknown datatype 'FP8'"),
        ({"inputs": [x([1, 1], "BYTES", data=["a"])]}, None, "wants FP32, got datatype BYTES"),
        ({"inputs": [x([1, 1], data=["a"])]}, None, "a number is wanted"),
        ({"inputs": [{**x([1, 1], data=ONE), "name": "z"}]}, None, "unknown input 'z'"),
        ({**GOOD, "outputs": [{"name": "z"}]}, None, "unknown output 'z'"),
        ({**GOOD, "outputs": ["y"]}, None, r"\$\.outputs\[0\]"),
        ({**GOOD, "id": 7}, None, r"\$\.id"),
        ({**GOOD, "parameters": {"sequence_id": 7}}, None, "sequences are not supported"),
        ({**GOOD, "parameters": {"triton_x": 7}}, None, "reserved"),
        ({**GOOD, "parameters": {"priority": -1}}, None, "priority"),
        ({**GOOD, "parameters": {"binary_data_output": 1}}, None, "true or false"),
        ({**GOOD, "outputs": [{"name": "y", "parameters": {"binary_data": 0}}]}, None, "true or"),
        (
            {**GOOD, "outputs": [{"name": "y", "parameters": {"classification": -1}}]},
            None,
            "classification",
        ),
        (
            {"inputs": [x([1, 1], parameters={"shared_memory_region": "r"})]},
            None,
            "shared memory is not supported",
        ),
        (GOOD, b"more", "4 bytes follow"),
        ({"inputs": [x([1, 1], parameters={"binary_data_size": 4}, data=ONE)]}, b"1234", "both"),
        ({"inputs": [x([1, 1], parameters={"binary_data_size": 4})]}, b"123", "only 3 bytes"),
        ({"inputs": [x([1, 1], parameters={"binary_data_size": 4})]}, None, "only 0 bytes"),
        ({"inputs": [x([1, 1], parameters={"binary_data_size": -4})]}, b"1234", "not -4"),
        ({"inputs": [x([1, 1], parameters={"binary_data_size": "4"})]}, b"1234", 'not "4"'),
        ({"inputs": [x([1, 1], parameters={"binary_data_size": True})]}, b"1", "not true"),
        ({"inputs": [x([1, 1], parameters={"binary_data_size": 3})]}, b"123", "takes 4 bytes"),
        (
            {"inputs": [x([2**40, 2**40], parameters={"binary_data_size": 4})]},
            b"1234",
            "shape mismatch",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_what_would_be_right(
    body: Json, binary: bytes | None, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        echo("FP32").decode(framed(body, binary))


def test_elements_of_bytes_that_lie_about_their_lengths() -> None:
    tensor = x([1], "BYTES", parameters={"binary_data_size": 5})
    for data in (b"\xff\xff\xff\xffa", b"\0\0\0\0\x01", b"\x01\0\0\0\xff"):
        with pytest.raises(InvalidInput, match="'x'"):
            echo("BYTES", rank=1).decode(framed({"inputs": [tensor]}, data))


def test_what_is_null_or_unknown_is_as_good_as_left_out() -> None:
    nothing: Json = {"id": None, "outputs": None, "parameters": None}
    body = {"inputs": [x([1, 1], parameters=None, data=ONE)], "extra": 1, **nothing}
    inference = echo("FP32").decode(framed(body))
    assert inference.outputs == ("y",)
    body = {**GOOD, "parameters": {"mine": {"a": [1]}, "priority": 1, "timeout": 5}}
    assert echo("FP32").decode(framed(body)).outputs == ("y",)


@given(st.binary(max_size=64), st.integers(0, 64))
def test_noise_is_refused_as_such(noise: bytes, json_bytes: int) -> None:
    for frame in (mark(None) + noise, mark(min(json_bytes, len(noise)) or 1) + noise):
        with pytest.raises(InvalidInput):
            echo("FP32").decode(frame)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_request_with_one_byte_changed_is_read_or_refused(at: int, byte: int) -> None:
    good = bytearray(binary_x(np.ones((1, 2), np.float32), "FP32", id="an id"))
    good[4 + at % (len(good) - 4)] = byte
    try:
        inference = echo("FP32").decode(bytes(good))
    except InvalidInput:
        return
    assert inference.inputs["x"].dtype == np.float32
    msgspec.json.decode(echo("FP32").encode((), (), inference.reply_as, 0.0)[4:])
