"""Requests that are read like the last ones mean what they would have meant on their own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import SnoozeError
from snoozeml.wire.dialect import Dialect
from snoozeml.wire.grpc_v1 import GrpcV1
from snoozeml.wire.oip_grpc import OipGrpc
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2
from snoozeml.wire.tensors import DATATYPES, Array

_SIGNATURE = Signature(
    (
        TensorSpec("x", "FP32", (None, 2)),
        TensorSpec("ids", "INT64", (None, None), bounds=(0, 100)),
    ),
    (TensorSpec("y", "FP32", (None, 2)),),
)


def v1(*arrays: tuple[str, Array], id: str = "") -> bytes:
    message = snoozeml_pb2.ModelInferRequest(model_id="m", parameters={"id": id})
    for name, array in arrays:
        message.inputs.add(
            name=name,
            shape=array.shape,
            data_type=snoozeml_pb2.DataType.Value(f"DATA_TYPE_{DATATYPES[array.dtype]}"),
            raw_data=array.tobytes(),
        )
    return bytes(message.SerializeToString())


def oip(*arrays: tuple[str, Array], id: str = "") -> bytes:
    message = oip_pb2.ModelInferRequest(model_name="m", id=id)
    for name, array in arrays:
        message.inputs.add(name=name, shape=array.shape, datatype=DATATYPES[array.dtype])
        message.raw_input_contents.append(array.tobytes())
    return bytes(message.SerializeToString())


Write = Callable[..., bytes]
Codec = Callable[[str, Signature], Dialect]
BOTH = pytest.mark.parametrize(("codec", "write"), [(GrpcV1, v1), (OipGrpc, oip)])


def x(*values: float) -> tuple[str, Array]:
    return "x", np.array([values], np.float32)


def ids(*values: int) -> tuple[str, Array]:
    return "ids", np.array([values], np.int64)


def meaning(codec: Dialect, body: bytes) -> Any:
    """What a request is read as, or why it is refused, in a form that can be compared."""
    try:
        inference = codec.decode(body)
    except SnoozeError as error:
        return error.code, error.message
    reply = inference.reply_as
    arrays = {n: (a.dtype, a.shape, a.tobytes()) for n, a in inference.inputs.items()}
    return arrays, inference.outputs, {n: getattr(reply, n) for n in reply.__slots__}


def warm(codec: Codec, *bodies: bytes) -> Dialect:
    """A codec that has seen each of these twice."""
    warmed = codec("m", _SIGNATURE)
    for body in (*bodies, *bodies):
        meaning(warmed, body)
    return warmed


@BOTH
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whatever_was_read_before_a_request_is_read_alike(
    codec: Codec, write: Write, data: st.DataObject
) -> None:
    like = write(x(1, 2), ids(3, 4), id="a")
    warmed = warm(codec, like)
    body = bytearray(like)
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert meaning(warmed, bytes(body)) == meaning(codec("m", _SIGNATURE), bytes(body))


@BOTH
def test_other_values_are_read_without_parsing(
    codec: Codec, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed = warm(codec, write(ids(1, 2), x(1, 2)))
    monkeypatch.setattr(warmed, "_assembly", None)
    inputs = warmed.decode(write(ids(3, 4), x(5, 6))).inputs
    assert {name: array.tolist() for name, array in inputs.items()} == {
        "ids": [[3, 4]],
        "x": [[5, 6]],
    }


@BOTH
def test_bounds_are_checked_every_time(codec: Codec, write: Write) -> None:
    warmed = warm(codec, write(x(1, 2), ids(3, 4)))
    assert meaning(warmed, write(x(1, 2), ids(3, 100)))[0] == "invalid_input"


@BOTH
def test_values_of_another_datatype_are_converted_every_time(codec: Codec, write: Write) -> None:
    def whole(*values: int) -> tuple[str, Array]:
        return "x", np.array([values], np.int32)

    warmed = warm(codec, write(whole(0, 0), ids(3, 4)))
    assert warmed.decode(write(whole(1, 2), ids(3, 4))).inputs["x"].tolist() == [[1, 2]]


@BOTH
def test_forms_are_forgotten_when_there_are_many(codec: Codec, write: Write) -> None:
    warmed = codec("m", _SIGNATURE)
    for length in [*range(1, 200)] * 2:
        body = write(x(1, 2), ids(*[5] * length))
        assert warmed.decode(body).inputs["ids"].tolist() == [[5] * length]
    assert len(warmed._repeats._forms._known) <= 64  # type: ignore[attr-defined]


def test_what_only_the_message_classes_can_read_is_not_learned() -> None:
    tensor = snoozeml_pb2.TensorData(name="x", shape=[1, 2], data_type="DATA_TYPE_FP32")
    tensor.raw_data = np.array([1, 2], np.float32).tobytes()
    group = b"\xa3\x06\xa4\x06"  # field 100, of a kind that has long gone out of use
    with_group = tensor.SerializeToString() + group
    body = b"\x0a\x01m\x12" + bytes([len(with_group)]) + with_group
    codec = GrpcV1("m", Signature(_SIGNATURE.inputs[:1], _SIGNATURE.outputs))
    for _ in range(4):
        assert codec.decode(body).inputs["x"].tolist() == [[1, 2]]
