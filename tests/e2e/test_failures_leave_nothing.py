"""What has failed is forgotten: neither the daemon nor the worker keeps what a request had sent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from e2e import processes
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.grpc_client import INFER, INFER_STREAM, Client, Refused, request, tensor
from python_models import python_model

_MIB: Final = 2**20
_BODY: Final = np.zeros((1, 4 * _MIB), np.float32)
_REQUESTS: Final = 8
_MAY_GROW_BYTES: Final = 80 * _MIB  # a few copies on their way, of the 128 MiB that come


def _by_rest(daemon: Daemon, _client: Client) -> None:
    data = _BODY.tobytes()
    given = {
        "name": "x",
        "datatype": "FP32",
        "shape": _BODY.shape,
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [given]}).encode()
    with daemon.connect() as connection:
        headers = {"Inference-Header-Content-Length": str(len(head))}
        reply = connection.request("POST", "/v2/models/fails/infer", head + data, headers)
    assert reply.status in (400, 500), reply


def _by_call(_daemon: Daemon, client: Client) -> None:
    assert isinstance(client.call(INFER, request("fails", tensor("x", _BODY))), Refused)


def _by_stream(_daemon: Daemon, client: Client) -> None:
    (answer,) = client.stream(INFER_STREAM, [request("fails", tensor("x", _BODY))])
    assert b"lost" in answer or b"wants" in answer


@pytest.mark.parametrize("library", ["native", "grpcio"])
@pytest.mark.parametrize("ask", [_by_rest, _by_call, _by_stream])
@pytest.mark.parametrize(
    ("predict", "shape"),
    [('return {"y": inputs["lost"]}', [-1, -1]), ('return {"y": inputs["x"]}', [-1, 3])],
    ids=["in the model", "before it"],
)
def test_memory_stays_what_it_was(
    serve: Serve,
    models_dir: Path,
    library: str,
    ask: Callable[[Daemon, Client], None],
    predict: str,
    shape: list[int],
) -> None:
    x, y = ({"name": name, "datatype": "FP32", "shape": shape} for name in "xy")
    python_model(models_dir / "fails", predict, inputs=[x], outputs=[y])
    daemon = serve(SNOOZE_GRPC_LIBRARY=library)
    with Client(daemon.ready["grpc"]) as client:
        ask(daemon, client)
        both = [daemon.pid, daemon.worker()]
        before = list(map(processes.resident_bytes, both))
        for _ in range(_REQUESTS):
            ask(daemon, client)
        after = list(map(processes.resident_bytes, both))
    for was, now in zip(before, after, strict=True):
        assert now - was < _MAY_GROW_BYTES, (was, now)


@pytest.mark.parametrize("settings", ["", "[models.fails]\nsandbox = true\n"], ids=["", "confined"])
def test_what_a_model_says_is_logged_as_far_as_anybody_reads(
    serve: Serve, models_dir: Path, settings: str
) -> None:
    python_model(models_dir / "fails", 'raise RuntimeError("x" * 20_000_000 + " at last")')
    daemon = serve(settings)

    def fail() -> None:
        reply = daemon.infer("fails", {"name": "x", "shape": [1, 1], "data": [1]})
        assert reply.json()["code"] == "inference_failed", reply

    fail()
    before = processes.resident_bytes(daemon.pid)
    for _ in range(5):
        fail()
    assert processes.resident_bytes(daemon.pid) - before < 8 * _MIB

    def said_of_all() -> list[str]:
        said = [line["event"] for line in daemon.log() if "request failed" in line["event"]]
        return said if len(said) == 6 else []

    said = eventually(said_of_all, "all six are in the log")
    assert all("snooze_model.py" in event and "at last" in event for event in said)
    assert max(map(len, said)) < 32 * 1024
