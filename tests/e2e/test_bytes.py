"""Elements of BYTES that are no text, such as images, on every road to a Python model."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import models
from e2e.daemon import Daemon
from e2e.grpc_client import INFER, MODEL_INFER, Client, Refused, request
from python_models import python_model
from snoozeml.wire.proto.oip_pb2 import ModelInferRequest, ModelInferResponse
from snoozeml.wire.proto.snoozeml_pb2 import DataType, TensorData
from snoozeml.wire.proto.snoozeml_pb2 import ModelInferResponse as V1Response

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"
VALUES = [JPEG, b"", "grüß".encode()]
RAW = b"".join(len(value).to_bytes(4, "little") + value for value in VALUES)
BACKWARDS = [value[::-1] for value in VALUES]

REVERSE = """
assert all(type(value) is bytes for value in inputs["x"])
reverse = np.empty(inputs["x"].shape, object)
reverse[:] = [value[::-1] for value in inputs["x"]]
return {"y": reverse}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Daemon]:
    """Python models that turn bytes around, and one that takes text, as an ONNX model does."""
    folder = tmp_path_factory.mktemp("models")
    reverse: dict[str, Any] = {"head": "import numpy as np", "bytes_as": "bytes"}
    declared = [{"name": "x", "datatype": "BYTES", "shape": [-1]}]
    python_model(folder / "inside", REVERSE, **reverse)
    python_model(folder / "apart", REVERSE, **reverse, env={"APART": "yes"})
    python_model(folder / "declared", REVERSE, **reverse, inputs=declared)
    python_model(folder / "text", 'return {"y": inputs["x"]}')
    models.string_model(folder / "onnx.onnx")
    with Daemon(folder, cache_dir) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


def rest(daemon: Daemon, model: str, name: str = "x") -> Any:
    size = {"binary_data_size": len(RAW)}
    given = {"name": name, "shape": [3], "datatype": "BYTES", "parameters": size}
    body = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(body))}
    reply = daemon.request("POST", f"/v2/models/{model}/infer", body + RAW, headers)
    if reply.status != 200:
        return reply.json()["error"]
    return reply.body[int(reply.headers["inference-header-content-length"]) :]


def oip(daemon: Daemon, model: str, **members: Any) -> ModelInferResponse | str:
    contents = members.pop("contents", None)
    message = ModelInferRequest(model_name=model, **members)
    message.inputs.add(name="x", datatype="BYTES", shape=[3], contents=contents)
    with Client(daemon.ready["grpc"]) as client:
        reply = client.call(MODEL_INFER, message.SerializeToString())
    if isinstance(reply, Refused):
        return reply.message
    response: ModelInferResponse = ModelInferResponse.FromString(reply.body)
    return response


def oip_raw(daemon: Daemon, model: str) -> Any:
    response = oip(daemon, model, raw_input_contents=[RAW])
    return response if isinstance(response, str) else response.raw_output_contents[0]


def oip_typed(daemon: Daemon, model: str) -> Any:
    response = oip(daemon, model, contents={"bytes_contents": VALUES})
    if isinstance(response, str):
        return response
    return lengthened(list(response.outputs[0].contents.bytes_contents))


def v1(daemon: Daemon, model: str) -> Any:
    tensor = TensorData(name="x", shape=[3], data_type=DataType.DATA_TYPE_BYTES, raw_data=RAW)
    with Client(daemon.ready["grpc"]) as client:
        reply = client.call(INFER, request(model, tensor))
    if isinstance(reply, Refused):
        return reply.message
    return V1Response.FromString(reply.body).outputs[0].raw_data


def lengthened(values: list[bytes]) -> bytes:
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


ROADS = pytest.mark.parametrize("ask", [rest, oip_raw, oip_typed, v1])


@ROADS
@pytest.mark.parametrize("model", ["inside", "apart", "declared"])
def test_a_model_that_wants_bytes_gets_them(
    daemon: Daemon, ask: Callable[[Daemon, str], Any], model: str
) -> None:
    assert ask(daemon, model) == lengthened(BACKWARDS)


@pytest.mark.parametrize("model", ["inside", "apart", "declared"])
def test_text_in_json_comes_to_such_a_model_as_bytes(daemon: Daemon, model: str) -> None:
    given = {"name": "x", "shape": [2], "datatype": "BYTES", "data": ["abc", "ü"]}
    body = json.dumps({"inputs": [given]}).encode()
    for target in (f"/v1/models/{model}/infer", f"/v2/models/{model}/infer"):
        (output,) = daemon.request("POST", target, body).json()["outputs"]
        assert output["parameters"] == {"content_type": "base64"}
        assert output["data"] == ["Y2Jh", "vMM="]


@ROADS
def test_a_model_that_takes_text_is_not_given_anything_else(
    daemon: Daemon, ask: Callable[[Daemon, str], Any]
) -> None:
    assert "text must be UTF-8" in ask(daemon, "text")


def test_onnx_models_take_text(daemon: Daemon) -> None:
    assert "input 'text': text must be UTF-8" in rest(daemon, "onnx", "text")
