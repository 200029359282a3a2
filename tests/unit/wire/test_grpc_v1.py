"""Requests of `snoozeml.v1` as arrays, and answers that its clients read."""

from typing import Any

import numpy as np
import pytest

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.grpc_v1 import GrpcV1
from snoozeml.wire.proto.snoozeml_pb2 import (
    DataType,
    ModelInferRequest,
    ModelInferResponse,
    TensorData,
)
from snoozeml.wire.tensors import DTYPES, Array, NamedArrays, names_of

FP32, BF16, INT64 = DataType.DATA_TYPE_FP32, DataType.DATA_TYPE_BF16, DataType.DATA_TYPE_INT64
BOOL, BYTES = DataType.DATA_TYPE_BOOL, DataType.DATA_TYPE_BYTES


def codec(datatype: Any = "FP32", shape: Any = (None, 2)) -> GrpcV1:
    x, y = TensorSpec("x", datatype, shape), TensorSpec("y", datatype, shape)
    return GrpcV1("m", Signature((x,), (y,)))


def tensor(array: Array, data_type: Any = FP32, name: str = "x") -> TensorData:
    return TensorData(name=name, shape=array.shape, data_type=data_type, raw_data=array.tobytes())


def request(*inputs: TensorData, **parameters: str) -> bytes:
    message = ModelInferRequest(model_id="m", inputs=inputs, parameters=parameters)
    return bytes(message.SerializeToString())


def answer(codec: GrpcV1, array: Array, **parameters: str) -> ModelInferResponse:
    zeros = np.zeros((1, 2), np.float32)
    inference = codec.decode(request(tensor(zeros), **parameters))
    encoded = codec.encode(["y"], [array], inference.reply_as, 0.0125)
    message: ModelInferResponse = ModelInferResponse.FromString(encoded)
    return message


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BYTES"])
def test_clients_may_send_everything_as_fp32(datatype: str) -> None:
    given = np.array([[1, 0]], "<f4")
    array = codec(datatype).decode(request(tensor(given))).inputs["x"]
    assert array.dtype == DTYPES[datatype]
    assert array.tolist() == [[1, 0]]


def test_what_fp32_cannot_give_a_whole_number_model_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"'x' wants INT64, got FP32 101\.5: .* not whole"):
        codec("INT64").decode(request(tensor(np.array([[101, 101.5]], "<f4"))))


def test_data_is_not_copied_out_of_the_message() -> None:
    array = codec().decode(request(tensor(np.array([[1.5, 2.5]], "<f4")))).inputs["x"]
    assert array.base is not None
    assert array.tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BYTES"])
def test_numbers_are_answered_as_fp32_unless_asked_otherwise(datatype: str) -> None:
    array = np.array([[1, 0]], DTYPES[datatype])
    (output,) = answer(codec(datatype), array).outputs
    assert (output.name, list(output.shape), output.data_type) == ("y", [1, 2], FP32)
    assert np.frombuffer(output.raw_data, "<f4").tolist() == [1.0, 0.0]
    (output,) = answer(codec(datatype), array, datatypes="native").outputs
    assert (
        f"DATA_TYPE_{datatype}"
        == TensorData.DESCRIPTOR.fields_by_name["data_type"]
        .enum_type.values_by_number[output.data_type]
        .name
    )
    assert output.raw_data == array.tobytes()


def test_text_stays_text() -> None:
    texts = codec("BYTES", (None,))
    given = TensorData(name="x", shape=[2], data_type=BYTES, raw_data=b"\2\0\0\0\xc3\xbc\0\0\0\0")
    inference = texts.decode(request(given))
    assert inference.inputs["x"].tolist() == ["ü", ""]
    array = np.array(["ü", b"\xff"], object)
    encoded = texts.encode(["y"], [array], inference.reply_as, 0.0)
    (output,) = ModelInferResponse.FromString(encoded).outputs
    assert output.data_type == BYTES
    assert output.raw_data == b"\2\0\0\0\xc3\xbc\1\0\0\0\xff"


def test_bf16_becomes_fp32() -> None:
    halves = np.array([[0x3F80, 0xC020]], "<u2")  # 1.0 and -2.5
    assert codec().decode(request(tensor(halves, BF16))).inputs["x"].tolist() == [[1.0, -2.5]]


def test_an_answer_says_whose_it_is_and_how_long_it_took() -> None:
    message = answer(codec(), np.zeros((1, 2), np.float32), id="abc", more="ignored")
    assert (message.model_id, message.duration_ms) == ("m", 12.5)
    assert dict(message.parameters) == {"id": "abc"}


def test_what_becomes_too_large_for_fp32_is_infinite() -> None:
    (output,) = answer(codec("FP64"), np.array([[1e300, 1.0]])).outputs
    assert np.frombuffer(output.raw_data, "<f4").tolist() == [np.inf, 1.0]


@pytest.mark.parametrize("shape", [(), (0, 2), (300, 1), (2, 3, 4)])
def test_shapes_of_every_rank_come_through(shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    (output,) = answer(codec(), array).outputs
    assert tuple(output.shape) == shape
    assert output.raw_data == array.tobytes()


def test_an_output_that_is_not_contiguous_is_written_row_by_row() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (output,) = answer(codec(), array).outputs
    assert np.frombuffer(output.raw_data, "<f4").tolist() == [0, 3, 1, 4, 2, 5]


def test_a_model_that_takes_anything_gets_what_is_sent() -> None:
    model = GrpcV1("m", Signature((), (), open_inputs=True, open_outputs=True))
    inference = model.decode(
        request(tensor(np.array([[1, 2]], "<i8"), INT64, "a"), datatypes="native")
    )
    assert inference.inputs["a"].dtype == np.int64
    arrays = NamedArrays(["b"], [np.array([True])])
    encoded = model.encode(names_of(arrays, ()), arrays, inference.reply_as, 0.0)
    (output,) = ModelInferResponse.FromString(encoded).outputs
    assert (output.name, output.data_type, output.raw_data) == ("b", 7, b"\1")


ROW = np.zeros((1, 2), "<f4")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\xff", "ModelInferRequest"),
        (b'{"inputs": []}', "ModelInferRequest"),
        (request(), "missing in inputs: 'x'"),
        (request(tensor(ROW, name="z")), "unknown input 'z'"),
        (request(tensor(ROW), tensor(ROW)), "more than once"),
        (request(tensor(ROW, 0)), "unknown data_type 0; known are DATA_TYPE_FP32"),
        (request(tensor(ROW, 99)), "unknown data_type 99"),
        (request(tensor(ROW, BYTES)), "wants FP32, got datatype BYTES"),
        (request(tensor(ROW), datatypes="best"), "datatypes must be native"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        codec().decode(body)


@pytest.mark.parametrize(
    ("shape", "size", "why"),
    [
        ([1, 2], 7, "takes 8 bytes, raw data has 7"),
        ([1, 2], 0, "takes 8 bytes"),
        ([-1, 2], 8, "never negative"),
        ([-(2**63), 2], 8, "never negative"),
        ([2**62, 2], 8, "takes 36893488147419103232 bytes"),
        ([2], 8, "wants"),
        ([1] * 40, 4, "wants"),
        ([0, 2**40], 0, "wants|no dimension may be larger"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(shape: list[int], size: int, why: str) -> None:
    wrong = TensorData(name="x", shape=shape, data_type=FP32, raw_data=bytes(size))
    with pytest.raises(ShapeMismatch, match=why):
        codec().decode(request(wrong))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\1\0\0", "ends within"),
        (b"\xff\xff\xff\xffab", "ends within"),
        (b"\1\0\0\0a", "holds 2 elements of BYTES, raw data has 1"),
        (b"\1\0\0\0\xff\0\0\0\0", "UTF-8"),
    ],
)
def test_text_that_is_torn_is_named(data: bytes, why: str) -> None:
    wrong = TensorData(name="x", shape=[2], data_type=BYTES, raw_data=data)
    with pytest.raises(InvalidInput, match=why):
        codec("BYTES", (None,)).decode(request(wrong))


def test_a_bool_that_is_neither_is_refused() -> None:
    wrong = TensorData(name="x", shape=[1, 2], data_type=BOOL, raw_data=b"\1\2")
    with pytest.raises(InvalidInput, match="byte of 0 or 1, got 2"):
        codec("BOOL").decode(request(wrong))
