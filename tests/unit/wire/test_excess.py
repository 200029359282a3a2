"""Requests with far too much of something cost no more than it takes to read them."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest

from snoozeml.core.request import Codec
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput
from snoozeml.wire.dialects import dialects
from snoozeml.wire.oip_framing import mark
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2

OPEN: Final = Signature((), (), open_inputs=True, open_outputs=True)
DECLARED: Final = Signature(
    (TensorSpec("x", "FP32", (None,), 0),), (TensorSpec("y", "FP32", (None,), 0),)
)
FP32: Final = snoozeml_pb2.DataType.DATA_TYPE_FP32


def json_v1(names: list[str], **more: Any) -> bytes:
    inputs = [{"name": n, "shape": [1], "data": [1], "datatype": "FP32"} for n in names]
    return json.dumps({"inputs": inputs, **more}).encode()


def oip_rest(names: list[str]) -> bytes:
    return mark(None) + json_v1(names)


def grpc_v1(names: list[str]) -> bytes:
    inputs = [{"name": n, "shape": [1], "data_type": FP32, "raw_data": bytes(4)} for n in names]
    return bytes(snoozeml_pb2.ModelInferRequest(inputs=inputs).SerializeToString())


def oip_grpc(names: list[str]) -> bytes:
    inputs = [
        {"name": n, "shape": [1], "datatype": "FP32", "contents": {"fp32_contents": [1.0]}}
        for n in names
    ]
    return bytes(oip_pb2.ModelInferRequest(inputs=inputs).SerializeToString())


DIALECTS: Final[list[tuple[Codec, Callable[[list[str]], bytes]]]] = [
    (Codec.JSON_V1, json_v1),
    (Codec.OIP_REST, oip_rest),
    (Codec.GRPC_V1, grpc_v1),
    (Codec.OIP_GRPC, oip_grpc),
]


def refused(codec: Codec, body: bytes, signature: Signature) -> str:
    with pytest.raises(InvalidInput) as caught:
        dialects("m", signature)[codec].decode(body)
    return caught.value.message


@pytest.mark.parametrize(("codec", "body"), DIALECTS)
def test_a_request_has_no_end_of_inputs(codec: Codec, body: Callable[[list[str]], bytes]) -> None:
    names = [str(n) for n in range(20_000)]
    for message in (body(names), body([*names[:-1], names[-2]])):
        assert "no more than 4096 inputs, this one has 20000" in refused(codec, message, OPEN)
        assert "unknown input '0'" in refused(codec, message, DECLARED)


@pytest.mark.parametrize(("codec", "body"), DIALECTS)
def test_as_many_inputs_as_there_may_be(codec: Codec, body: Callable[[list[str]], bytes]) -> None:
    names = [str(n) for n in range(4096)]
    assert [*dialects("m", OPEN)[codec].decode(body(names)).inputs] == names
    double = body([*names[:-1], names[-2]])
    assert "input '4094' is there more than once" in refused(codec, double, OPEN)


def test_a_request_asks_for_no_end_of_outputs() -> None:
    body = json_v1(["x"], outputs=[str(n) for n in range(20_000)])
    message = refused(Codec.JSON_V1, body, OPEN)
    assert "no more than 4096 outputs, this one has 20000" in message


LONG: Final = "\1" * 1_000_000


ESCAPED: Final = b"\\u0001" * 1_000_000
MANY: Final = json.dumps([1] * 2**18).encode()
SHAPE: Final = b'"shape": [1]'


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        (Codec.JSON_V1, json_v1([LONG, LONG])),
        (Codec.JSON_V1, json_v1([LONG]).replace(b'"data": [1]', b'"data": ["a"]')),
        (Codec.JSON_V1, json_v1([LONG]).replace(b'"data": [1]', b'"data": [1,2]')),
        (Codec.JSON_V1, json_v1([LONG]).replace(b"FP32", b"FP31")),
        (Codec.JSON_V1, json_v1([LONG]).replace(SHAPE, b'"shape": [0, 70000]')),
        (Codec.JSON_V1, json_v1(["x"]).replace(SHAPE, b'"shape": ' + MANY)),
        (Codec.JSON_V1, json_v1(["x"]).replace(b'"data": [1]', b'"data": ["%b"]' % ESCAPED)),
        (Codec.OIP_REST, oip_rest([LONG, LONG])),
        (
            Codec.OIP_REST,
            oip_rest(["x"]).replace(b"{", b'{"parameters": {"priority": "%b"}, ' % ESCAPED, 1),
        ),
        (Codec.GRPC_V1, grpc_v1([LONG]).replace(bytes(4), b"\1\1\1\1") + grpc_v1([LONG])),
        (Codec.OIP_GRPC, oip_grpc([LONG, LONG])),
        (Codec.OIP_GRPC, oip_grpc([LONG]).replace(b"FP32", b"BOOL")),
    ],
    ids=range(12),
)
def test_what_is_refused_is_not_quoted_in_full(codec: Codec, body: bytes) -> None:
    decoder = dialects("m", OPEN)[codec]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput) as caught:
            decoder.decode(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(caught.value.message) < 4096
    assert peak < 2 * len(body) + 2 * len(LONG)
