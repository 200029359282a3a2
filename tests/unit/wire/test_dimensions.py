"""Shapes that no array has are refused in every dialect, before anything is reckoned with them."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from snoozeml.core.request import Codec
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.dialects import dialects
from snoozeml.wire.oip_framing import mark
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2

OPEN = Signature((), (), open_inputs=True, open_outputs=True)
DECLARED = Signature((TensorSpec("x", "FP32", (None, 2), 0),), ())
FP32 = snoozeml_pb2.DataType.DATA_TYPE_FP32

Shape = Sequence[int]


def json_v1(shape: Shape, **more: Any) -> bytes:
    tensor = {"name": "x", "shape": list(shape), "data": [1.0], **more}
    return json.dumps({"inputs": [tensor]}).encode()


def grpc_v1(shape: Shape) -> bytes:
    tensor = snoozeml_pb2.TensorData(name="x", data_type=FP32, shape=shape, raw_data=bytes(4))
    request = snoozeml_pb2.ModelInferRequest(model_id="m", inputs=[tensor])
    return bytes(request.SerializeToString())


def oip_grpc(shape: Shape, **contents: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, **contents}
    raw = [] if contents else [bytes(4)]
    request = oip_pb2.ModelInferRequest(inputs=[tensor], raw_input_contents=raw)
    return bytes(request.SerializeToString())


def oip_grpc_typed(shape: Shape) -> bytes:
    return oip_grpc(shape, contents={"fp32_contents": [1.0]})


def oip_rest(shape: Shape) -> bytes:
    return mark(None) + json_v1(shape, datatype="FP32")


def oip_rest_binary(shape: Shape) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": list(shape)}
    text = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 4}}]}).encode()
    return mark(len(text)) + text + bytes(4)


DIALECTS: list[tuple[Codec, Callable[[Shape], bytes]]] = [
    (Codec.JSON_V1, json_v1),
    (Codec.GRPC_V1, grpc_v1),
    (Codec.OIP_GRPC, oip_grpc),
    (Codec.OIP_GRPC, oip_grpc_typed),
    (Codec.OIP_REST, oip_rest),
    (Codec.OIP_REST, oip_rest_binary),
]


@pytest.mark.parametrize(("codec", "body"), DIALECTS)
@pytest.mark.parametrize("size", [1, 2, 2**62])
def test_no_tensor_has_more_dimensions_than_arrays_can(
    codec: Codec, body: Callable[[Shape], bytes], size: int
) -> None:
    # The product of so many takes seconds, and then more digits than Python prints.
    shape = [size] * 20_000
    with pytest.raises(ShapeMismatch, match="'x' has 20000 dimensions; no tensor has more than 64"):
        dialects("m", OPEN)[codec].decode(body(shape))
    with pytest.raises(ShapeMismatch, match=r"'x' wants \[-1, 2\], got 20000 dimensions"):
        dialects("m", DECLARED)[codec].decode(body(shape))


@pytest.mark.parametrize(("codec", "body"), DIALECTS)
def test_as_many_as_arrays_can_are_fine(codec: Codec, body: Callable[[Shape], bytes]) -> None:
    inputs = dialects("m", OPEN)[codec].decode(body([1] * 64)).inputs
    assert inputs["x"].shape == (1,) * 64


@pytest.mark.parametrize(("codec", "body"), DIALECTS)
@pytest.mark.parametrize("shape", [[2**63 - 1] * 64, [2**63 - 1]])
def test_dimensions_beyond_all_memory_do_not_fit_the_data(
    codec: Codec, body: Callable[[Shape], bytes], shape: Shape
) -> None:
    with pytest.raises(ShapeMismatch):
        dialects("m", OPEN)[codec].decode(body(shape))


@pytest.mark.parametrize("codec_and_body", [(Codec.JSON_V1, json_v1), (Codec.OIP_REST, oip_rest)])
@pytest.mark.parametrize("size", [2**63, 10**400, -(10**400)])
def test_json_has_dimensions_that_no_message_of_grpc_can_say(
    codec_and_body: tuple[Codec, Callable[[Shape], bytes]], size: int
) -> None:
    codec, body = codec_and_body
    with pytest.raises(InvalidInput, match=r"inputs\[0\]\.shape\[1\]"):
        dialects("m", OPEN)[codec].decode(body([1, size] * 30))
