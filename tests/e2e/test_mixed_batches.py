"""Requests of every transport meet in one queue, and so in one batch."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e import grpc_client
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.gate import Gate, until_waiting
from python_models import python_model
from snoozeml.wire.proto.oip_pb2 import ModelInferRequest, ModelInferResponse

CLIENTS = 32
LARGEST_OF_ONE_TRANSPORT = 16
"""A bound of the histogram: each transport has at most 11 clients of a row each."""

Array = Any
Ask = Callable[[Daemon, Array], Array]


def rest_v1(daemon: Daemon, row: Array) -> Array:
    outputs = daemon.infer("patient", tensor("x", row.shape, row.tolist())).outputs()
    return np.array(outputs["y"])


def rest_v2(daemon: Daemon, row: Array) -> Array:
    body = {"inputs": [tensor("x", row.shape, row.tolist(), datatype="FP32")]}
    reply = daemon.request("POST", "/v2/models/patient/infer", json.dumps(body).encode())
    return np.array(reply.outputs()["y"])


def rest_v2_binary(daemon: Daemon, row: Array) -> Array:
    raw = row.tobytes()
    sized = {"binary_data_size": len(raw)}
    given = {"name": "x", "shape": row.shape, "datatype": "FP32", "parameters": sized}
    body = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(body))}
    reply = daemon.request("POST", "/v2/models/patient/infer", body + raw, headers)
    assert reply.status == 200, reply
    return np.frombuffer(reply.body[-len(raw) :], np.float32)


def grpc_v1(daemon: Daemon, row: Array) -> Array:
    with grpc_client.Client(daemon.ready["grpc"]) as client:
        return client.infer("patient", grpc_client.tensor("x", row))["y"]


def grpc_oip(daemon: Daemon, row: Array) -> Array:
    request = ModelInferRequest(model_name="patient", raw_input_contents=[row.tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=row.shape)
    with grpc_client.Client(daemon.ready["grpc"]) as client:
        reply = client.call(grpc_client.MODEL_INFER, request.SerializeToString())
    assert isinstance(reply, grpc_client.Reply), reply
    response = ModelInferResponse.FromString(reply.body)
    return np.frombuffer(response.raw_output_contents[0], np.float32)


TRANSPORTS: tuple[tuple[Ask, ...], ...] = (
    (rest_v1,),
    (grpc_v1, grpc_oip),
    (rest_v2, rest_v2_binary),
)


def ask_by_turns(daemon: Daemon, number: int) -> tuple[Array, Array]:
    """Row and answer of one client; each third of the clients has another transport."""
    transport = TRANSPORTS[number % 3]
    row = np.array([[number, -number, number / 8]], np.float32)
    return row, transport[number // 3 % len(transport)](daemon, row)


@pytest.mark.parametrize("library", ["native", "grpcio"])
def test_batches_are_larger_than_one_transport_could_make_them(
    serve: Serve, models_dir: Path, library: str
) -> None:
    """The model does not get ready before all of them wait for it."""
    gate = Gate(models_dir.parent / "gate")
    python_model(models_dir / "patient", load=gate.load)
    daemon = serve("[defaults]\nmax_batch_size = 32\n", SNOOZE_GRPC_LIBRARY=library)
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pool.submit(ask_by_turns, daemon, number) for number in range(CLIENTS)]
        until_waiting(daemon, "patient", CLIENTS)
        gate.open()
        for answer in answers:
            row, doubled = answer.result()
            np.testing.assert_array_equal(doubled.ravel(), row.ravel() * 2)

    samples = daemon.metrics()
    name = "snoozeml_model_batch_size"
    runs = samples[name + '_count{model="patient"}']
    small = samples[name + f'_bucket{{le="{LARGEST_OF_ONE_TRANSPORT}.0",model="patient"}}']
    assert samples[name + '_sum{model="patient"}'] == CLIENTS
    assert runs - small >= 1
