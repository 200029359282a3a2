"""Who asks to go first does, on every road of the protocol."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.client import infer_body, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.gate import Gate, until_waiting
from e2e.grpc_client import MODEL_INFER, Client, Reply
from python_models import python_model
from snoozeml.wire.proto.oip_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
)

COUNT = 'self.calls = getattr(self, "calls", 0) + 1\nreturn {"turn": inputs["x"] * 0 + self.calls}'
"""Each call is answered with how many there were before it, itself included."""

Ask = Callable[[Daemon, int], float]


def rest(daemon: Daemon, priority: int) -> float:
    parameters = {"priority": priority} if priority else {}
    body = infer_body(tensor("x", [1, 1], [0], datatype="FP32"), parameters=parameters)
    reply = daemon.request("POST", "/v2/models/counter/infer", body)
    return float(reply.outputs()["turn"][0])


def message(priority: int) -> bytes:
    request = ModelInferRequest(model_name="counter")
    if priority:
        request.parameters["priority"].uint64_param = priority
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1]).contents.fp32_contents.append(0)
    return bytes(request.SerializeToString())


def turn(response: ModelInferResponse) -> float:
    return float(response.outputs[0].contents.fp32_contents[0])


def unary(daemon: Daemon, priority: int) -> float:
    with Client(daemon.ready["grpc"]) as client:
        reply = client.call(MODEL_INFER, message(priority))
    assert isinstance(reply, Reply), reply
    return turn(ModelInferResponse.FromString(reply.body))


def stream(daemon: Daemon, priority: int) -> float:
    def bodies() -> Iterator[bytes]:
        yield message(priority)

    with Client(daemon.ready["grpc"]) as client:
        (body,) = client.stream("/inference.GRPCInferenceService/ModelStreamInfer", bodies())
    return turn(ModelStreamInferResponse.FromString(body).infer_response)


@pytest.mark.parametrize("library", ["native", "grpcio"])
def test_requests_are_served_by_priority_and_then_by_arrival(
    serve: Serve, models_dir: Path, library: str
) -> None:
    asked: list[tuple[Ask, int]] = [
        (rest, 9), (rest, 0), (stream, 5), (unary, 0), (unary, 1), (stream, 1), (rest, 2),
    ]  # fmt: skip
    gate = Gate(models_dir.parent / "gate")
    python_model(models_dir / "counter", COUNT, load=gate.load)
    settings = "[defaults]\nbatching = 'off'\nmax_replicas = 1\n"
    daemon = serve(settings, SNOOZE_GRPC_LIBRARY=library)
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = []
        for waiting, (ask, priority) in enumerate(asked, start=1):
            answers.append(pool.submit(ask, daemon, priority))
            until_waiting(daemon, "counter", waiting)
        gate.open()
        turns = [int(answer.result()) for answer in answers]
    assert turns == [7, 4, 5, 6, 1, 2, 3]
