"""A head that is known by the bytes around it is the head that reading would have found."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snoozeml.errors import SnoozeError
from snoozeml.fronts.grpc.heads import Head, HeadReader, oip_heads, v1_heads
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2


def v1(data: bytes = b"abcd", timeout_ms: int = 200) -> bytes:
    message = snoozeml_pb2.ModelInferRequest(model_id="iris", client_timeout_ms=timeout_ms)
    message.inputs.add(name="x", shape=[1, 1], data_type="DATA_TYPE_FP32", raw_data=data)
    return bytes(message.SerializeToString())


def oip(data: bytes = b"abcd", timeout_ms: int = 200) -> bytes:
    message = oip_pb2.ModelInferRequest(model_name="iris", raw_input_contents=[data])
    message.inputs.add(name="x", shape=[1, 1], datatype="FP32")
    message.parameters["timeout"].int64_param = timeout_ms * 1000
    return bytes(message.SerializeToString())


BOTH = pytest.mark.parametrize(("heads", "write"), [(v1_heads, v1), (oip_heads, oip)])
Heads = Callable[[], HeadReader]
Write = Callable[..., bytes]


def found(read: HeadReader, body: bytes) -> Head | str:
    try:
        return read(body)
    except SnoozeError as error:
        return error.message


@BOTH
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whatever_was_read_before_a_head_is_read_alike(
    heads: Heads, write: Write, data: st.DataObject
) -> None:
    warmed, like = heads(), write()
    for _ in range(2):
        warmed(like)
    body = bytearray(like)
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert found(warmed, bytes(body)) == found(heads(), bytes(body))


@BOTH
def test_only_tensors_may_differ(heads: Heads, write: Write) -> None:
    warmed = heads()
    for _ in range(2):
        warmed(write())
    assert warmed(write(b"efgh")) is warmed(write(b"ijkl"))
    assert warmed(write(timeout_ms=201)).timeout_s == 0.201
