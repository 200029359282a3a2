"""An answer written from the outputs of a whole run is what it would be if written by itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.dialect import Dialect
from snoozeml.wire.grpc_v1 import GrpcV1
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.oip_framing import mark
from snoozeml.wire.oip_grpc import OipGrpc
from snoozeml.wire.oip_rest import OipRest
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2
from snoozeml.wire.tensors import DTYPES, Array

X = np.zeros((1, 2), np.float32)


def json_v1() -> bytes:
    return b'{"inputs": [{"name": "x", "shape": [1, 2], "data": [0, 0]}]}'


def grpc_v1(**parameters: str) -> bytes:
    message = snoozeml_pb2.ModelInferRequest(model_id="m", parameters=parameters)
    message.inputs.add(name="x", shape=X.shape, data_type="DATA_TYPE_FP32", raw_data=X.tobytes())
    return bytes(message.SerializeToString())


def oip_grpc(*, raw: bool = True, classes: int = 0) -> bytes:
    message = oip_pb2.ModelInferRequest(model_name="m", id="7")
    tensor = message.inputs.add(name="x", shape=X.shape, datatype="FP32")
    if raw:
        message.raw_input_contents.append(X.tobytes())
    else:
        tensor.contents.fp32_contents.extend([0, 0])
    for name in ("y", "z"):
        output = message.outputs.add(name=name)
        if classes and name == "y":
            output.parameters["classification"].int64_param = classes
    return bytes(message.SerializeToString())


def oip_rest(*, binary: bool) -> bytes:
    flag = b"true" if binary else b"false"
    return mark(None) + (
        b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0, 0]}],'
        b' "parameters": {"binary_data_output": %b}}' % flag
    )


REQUESTS: dict[str, tuple[Callable[[str, Signature], Dialect], bytes]] = {
    "JSON": (JsonV1, json_v1()),
    "gRPC": (GrpcV1, grpc_v1()),
    "gRPC native": (GrpcV1, grpc_v1(datatypes="native", id="7")),
    "OIP gRPC": (OipGrpc, oip_grpc()),
    "OIP gRPC typed": (OipGrpc, oip_grpc(raw=False)),
    "OIP gRPC classes": (OipGrpc, oip_grpc(classes=2)),
    "OIP REST binary": (OipRest, oip_rest(binary=True)),
    "OIP REST JSON": (OipRest, oip_rest(binary=False)),
}


def column(datatype: Any, shape: tuple[int, ...]) -> Array:
    numbers = np.arange(np.prod(shape)) % 100
    if datatype == "BYTES":
        texts = np.empty(shape, object)
        texts.ravel()[:] = [str(number) for number in numbers]
        return texts
    return numbers.reshape(shape).astype(DTYPES[datatype])


@pytest.mark.parametrize(("codec", "body"), REQUESTS.values(), ids=REQUESTS)
@settings(max_examples=60, deadline=None)
@given(
    datatypes=st.tuples(*[st.sampled_from(sorted(DTYPES))] * 2),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    row=st.lists(st.sampled_from([1, 3, 40]), max_size=2),
    transposed=st.booleans(),
)
def test_rows_are_written_as_answers_of_their_own(
    codec: Callable[[str, Signature], Dialect],
    body: bytes,
    datatypes: tuple[Any, Any],
    counts: list[int],
    row: list[int],
    transposed: bool,
) -> None:
    if codec is OipGrpc and "BYTES" in datatypes and b"classification" in body:
        datatypes = ("FP32", datatypes[1])  # text has no classes
    specs = [
        TensorSpec(name, datatype, (None, *row), batch_axis=0)
        for name, datatype in zip("yz", datatypes, strict=True)
    ]
    x = TensorSpec("x", "FP32", (None, 2), batch_axis=0)
    dialect = codec("m", Signature((x,), tuple(specs)))
    outputs = [column(spec.datatype, (sum(counts), *row)) for spec in specs]
    if transposed:
        outputs = [np.asfortranarray(array) for array in outputs]
    reply_as = dialect.decode(body).reply_as
    write = dialect.rows_writer(["y", "z"], outputs, reply_as)
    stop = 0
    for count in counts:
        rows = slice(stop, stop := stop + count)
        alone = [np.ascontiguousarray(array[rows]) for array in outputs]
        assert write(rows, 0.5) == dialect.encode(["y", "z"], alone, reply_as, 0.5)
