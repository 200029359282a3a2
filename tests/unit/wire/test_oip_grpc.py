"""Requests of the Open Inference Protocol as arrays, and answers that its clients read."""

from typing import Any

import numpy as np
import pytest

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire import oip
from snoozeml.wire.oip_grpc import OipGrpc
from snoozeml.wire.proto.oip_pb2 import ModelInferRequest, ModelInferResponse
from snoozeml.wire.tensors import DTYPES, Array

TYPED = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-32768, 32767]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [0.5, -1.5]),
    "FP64": ("fp64_contents", [0.1, 1e300]),
    "BYTES": ("bytes_contents", ["ü".encode(), b""]),
}


def codec(datatype: Any = "FP32", batch_axis: int | None = 0) -> OipGrpc:
    x = TensorSpec("x", datatype, (None, 2), batch_axis)
    y = TensorSpec("y", datatype, (None, None), batch_axis)
    return OipGrpc("m", Signature((x,), (y,)))


def message(datatype: str = "FP32", *raw: bytes, shape: Any = (1, 2), **contents: Any) -> Any:
    tensor = {"name": "x", "datatype": datatype, "shape": shape}
    if contents:
        tensor["contents"] = contents
    return ModelInferRequest(model_name="m", id="7", inputs=[tensor], raw_input_contents=raw)


def answer(codec: OipGrpc, request: Any, array: Array) -> ModelInferResponse:
    inference = codec.decode(request.SerializeToString())
    encoded = codec.encode(inference.outputs, [array], inference.reply_as, 0.0)
    response: ModelInferResponse = ModelInferResponse.FromString(encoded)
    return response


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_values_come_in_and_go_out(datatype: str) -> None:
    field, values = TYPED[datatype]
    request = message(datatype, **{field: values})
    array = codec(datatype).decode(request.SerializeToString()).inputs["x"]
    assert array.dtype == DTYPES[datatype]
    expected = ["ü", ""] if datatype == "BYTES" else values
    assert array.ravel().tolist() == expected
    response = answer(codec(datatype), request, array)
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", datatype, [1, 2])
    assert list(getattr(output.contents, field)) == values
    assert not response.raw_output_contents


@pytest.mark.parametrize("datatype", DTYPES)
def test_raw_values_come_in_and_go_out(datatype: str) -> None:
    array = np.array([["ü", ""]], object)
    raw = b"\2\0\0\0\xc3\xbc\0\0\0\0"
    if datatype != "BYTES":
        array = np.array([[1, 0]], DTYPES[datatype])
        raw = array.tobytes()
    request = message(datatype, raw)
    np.testing.assert_array_equal(
        codec(datatype).decode(request.SerializeToString()).inputs["x"], array
    )
    response = answer(codec(datatype), request, array)
    assert list(response.raw_output_contents) == [raw]
    assert not response.outputs[0].HasField("contents")


def test_a_shape_that_no_array_has() -> None:
    codec = OipGrpc("m", Signature((), (), open_inputs=True, open_outputs=True))
    request = message("FP32", shape=[60_000] * 5 + [0], fp32_contents=[])
    with pytest.raises(ShapeMismatch, match="no array has the shape"):
        codec.decode(request.SerializeToString())


def test_an_answer_says_whose_it_is() -> None:
    response = answer(codec(), message("FP32", bytes(8)), np.zeros((1, 2), np.float32))
    assert (response.model_name, response.model_version, response.id) == ("m", "1", "7")


def test_fp16_is_answered_raw_since_it_has_no_other_form() -> None:
    x, y = TensorSpec("x", "FP32", (None, 2), 0), TensorSpec("y", "FP16", (None, 2), 0)
    half = OipGrpc("m", Signature((x,), (y,)))
    array = np.array([[1, 2]], np.float16)
    response = answer(half, message(fp32_contents=[1, 2]), array)
    assert list(response.raw_output_contents) == [array.tobytes()]


def test_bf16_comes_in_raw() -> None:
    halves = np.array([0x3F80, 0xC020], "<u2").tobytes()
    inference = codec().decode(message("BF16", halves).SerializeToString())
    assert inference.inputs["x"].tolist() == [[1.0, -2.5]]


def test_another_datatype_is_converted_where_nothing_is_lost() -> None:
    request = message("INT64", int64_contents=[1, 2**24])
    assert codec().decode(request.SerializeToString()).inputs["x"].tolist() == [[1, 2**24]]
    request = message("INT64", int64_contents=[1, 2**24 + 1])
    with pytest.raises(InvalidInput, match="no exact equal"):
        codec().decode(request.SerializeToString())


def classified(array: Array, count: Any, batch_axis: int | None = 0) -> ModelInferResponse:
    request = message("FP32", bytes(8))
    request.outputs.add(name="y").parameters["classification"].int64_param = count
    return answer(codec(batch_axis=batch_axis), request, array)


def test_classification_names_the_highest_values_of_each_row() -> None:
    response = classified(np.array([[0.1, 0.7, 0.2], [3, 1, 2]], np.float32), 2)
    (output,) = response.outputs
    assert (output.datatype, list(output.shape)) == ("BYTES", [2, 2])
    wanted = ["0.700000:1", "0.200000:2", "3.000000:0", "2.000000:2"]
    lengths = [len(text).to_bytes(4, "little") + text.encode() for text in wanted]
    assert response.raw_output_contents[0] == b"".join(lengths)


@pytest.mark.parametrize(
    ("array", "axis", "shape"),
    [
        (np.zeros((2, 3), np.float32), 0, [2, 3]),  # fewer classes than asked for
        (np.zeros((3, 2), np.float32), 1, [2, 3]),
        (np.zeros((2, 2, 2), np.float32), 0, [2, 4]),
        (np.zeros((2, 3), np.float32), None, [5]),
        (np.zeros((), np.float32), None, [1]),
        (np.zeros((0, 3), np.float32), 0, [0, 3]),
    ],
)
def test_classification_finds_the_rows(array: Array, axis: int | None, shape: list[int]) -> None:
    (output,) = classified(array, 5, axis).outputs
    assert list(output.shape) == shape


def test_no_classes_asked_for_leaves_the_output_as_it_is() -> None:
    assert classified(np.zeros((1, 2), np.float32), 0).outputs[0].datatype == "FP32"


def test_a_classification_that_would_make_a_huge_answer_is_refused() -> None:
    array = np.zeros((4, 20_000), np.float32)
    assert list(classified(array, 16_384).outputs[0].shape) == [4, 16_384]
    with pytest.raises(InvalidInput, match=r"'y': .* 4 rows of 16385 texts, .* 65536"):
        classified(array, 16_385)
    with pytest.raises(InvalidInput, match="4 rows of 20000 texts"):
        classified(array, 2**40)
    with pytest.raises(InvalidInput, match="1 rows of 80000 texts"):
        classified(array, 2**40, None)


def with_parameter(name: str, **value: Any) -> Any:
    request = message("FP32", bytes(8))
    request.parameters[name].CopyFrom(type(request.parameters["a"])(**value))
    return request


def with_output(name: str, **parameter: Any) -> Any:
    request = message("FP32", bytes(8))
    output = request.outputs.add(name=name)
    for key, number in parameter.items():
        output.parameters[key].int64_param = number
    return request


@pytest.mark.parametrize(
    "request_",
    [
        with_parameter("anything", string_param="x"),
        with_parameter("timeout", int64_param=5),
        with_parameter("priority", uint64_param=1),
        with_parameter("sequence_id", uint64_param=0),  # how clients say: no sequence
        with_parameter("sequence_start", bool_param=False),
    ],
)
def test_parameters_that_ask_for_nothing_special_are_accepted(request_: Any) -> None:
    assert codec().decode(request_.SerializeToString()).inputs["x"].shape == (1, 2)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (message("FP32", bytes(8), bytes(8)), "one entry per input, so 1, got 2"),
        (message("FP32", bytes(8), fp32_contents=[1, 2]), "raw_input_contents as well"),
        (message(int_contents=[1, 2]), "goes into fp32_contents, found int_contents"),
        (message("FP16", fp32_contents=[1, 2]), "FP16 has no contents"),
        (message("BF16", fp32_contents=[1, 2]), "BF16 has no contents"),
        (message("INT8", int_contents=[1, 300]), "INT8 300: it lies outside -128 to 127"),
        (message("FP99", bytes(8)), "unknown datatype 'FP99'"),
        (message("", bytes(8)), "unknown datatype ''"),
        (message("BYTES", bytes(8)), "got datatype BYTES"),
        (with_parameter("triton_x", string_param="a"), "'triton_x' is reserved"),
        (with_parameter("headers", string_param="a"), "'headers' is reserved"),
        (with_parameter("sequence_id", uint64_param=3), "sequences are not supported"),
        (with_parameter("priority", int64_param=-1), "priority must be a whole number"),
        (with_parameter("priority", string_param="high"), "priority must be a whole number"),
        (with_output("z"), "unknown output 'z'"),
        (with_output("y", classification=-1), "classification must be a whole number"),
        (with_output("y", shared_memory_region=1), "shared memory is not supported"),
    ],
)
def test_what_is_wrong_is_named(request_: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        codec().decode(request_.SerializeToString())


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (message(fp32_contents=[1]), "holds 2 values, contents have 1"),
        (message(), "holds 2 values, contents have 0"),
        (message("FP32", bytes(7)), "takes 8 bytes, raw data has 7"),
        (message("FP32", bytes(8), shape=(-1, 2)), "never negative"),
        (message("FP32", bytes(8), shape=(2**62, 2)), "raw data has 8"),
        (message(fp32_contents=[1, 2], shape=(2**62, 2)), "contents have 2"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(request_: Any, why: str) -> None:
    with pytest.raises(ShapeMismatch, match=why):
        codec().decode(request_.SerializeToString())


def test_what_is_no_message_is_named() -> None:
    with pytest.raises(InvalidInput, match="no valid ModelInferRequest"):
        codec().decode(b"\xff\xff")


@pytest.mark.parametrize(
    ("labels", "best"),
    [(("rose", "sun:flower", "é"), ":1:sun:flower"), (("rose", "tulip"), ":1"), ((), ":1")],
)
def test_classes_have_names_where_there_is_one_for_each(labels: tuple[str, ...], best: str) -> None:
    outputs = oip.Outputs(Signature((), (), open_outputs=True, labels=labels))
    array = np.array([[0.1, 0.7, 0.2]], np.float32)
    assert outputs.written("y", array, 1)[1].tolist() == [["0.700000" + best]]


def test_text_has_no_classification() -> None:
    request = message("BYTES", b"\0\0\0\0" * 2)
    request.outputs.add(name="y").parameters["classification"].int64_param = 1
    with pytest.raises(InvalidInput, match="'y' is text"):
        answer(codec("BYTES"), request, np.array([["a", "b"]], object))
