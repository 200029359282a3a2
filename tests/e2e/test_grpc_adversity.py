"""Broken messages, clients that leave, and a server that stops: clean errors, and nothing leaks."""

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGTERM

import grpc
import numpy as np
import pytest

import models
from e2e import processes
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.grpc_client import (
    CHECK,
    INFER,
    INFER_STREAM,
    MODEL_INFER,
    WATCH,
    Client,
    Refused,
    Reply,
    refused,
    request,
    tensor,
)
from snoozeml.wire.proto.oip_pb2 import ModelInferRequest
from snoozeml.wire.proto.snoozeml_pb2 import DataType, ModelInferResponse, TensorData

ROW = np.array([[5.1, 3.5, 1.4, 0.2]], np.float32)
GOOD = request("iris", tensor("X", ROW))
MIB = 2**20
LIBRARIES = ("native", "grpcio")


def x(shape: list[int], raw: bytes) -> bytes:
    return request(
        "iris", TensorData(name="X", shape=shape, data_type=DataType.DATA_TYPE_FP32, raw_data=raw)
    )


def oip(*raw: bytes, shape: list[int] | None = None, contents: list[float] | None = None) -> bytes:
    message = ModelInferRequest(model_name="iris", raw_input_contents=raw)
    tensor = message.inputs.add(name="X", datatype="FP32", shape=shape or [1, 4])
    tensor.contents.fp32_contents.extend(contents or [])
    return bytes(message.SerializeToString())


BROKEN = {
    "nothing": (INFER, b""),
    "no protobuf": (INFER, b"\xff" * 40),
    "JSON": (INFER, b'{"inputs": []}'),
    "cut off": (INFER, GOOD[:-3]),
    "a broken tensor behind a good head": (INFER, GOOD + b"\x12\x02\x0a\x7f"),
    "a tensor of another wire type": (INFER, b"\x0a\x04iris\x12\x02\x08\x01"),
    "fields without end": (INFER, b"\x08\x01" * 100_000),
    "no protobuf for the other service": (MODEL_INFER, b"\xff" * 40),
    "raw data too short": (INFER, x([1, 4], bytes(15))),
    "raw data too long": (INFER, x([1, 4], bytes(17))),
    "a negative shape": (INFER, x([-1, 4], bytes(16))),
    "a shape whose product overflows": (INFER, x([2**62, 4], bytes(16))),
    "a shape beyond all ranks": (INFER, x([1] * 1000, bytes(4))),
    "raw beside typed": (MODEL_INFER, oip(bytes(16), contents=[1, 2, 3, 4])),
    "raw for another number of inputs": (MODEL_INFER, oip(bytes(16), bytes(16))),
    "typed values missing": (MODEL_INFER, oip(contents=[1, 2, 3])),
    "a negative shape, typed": (MODEL_INFER, oip(shape=[-1, 4], contents=[1, 2, 3, 4])),
    "a product that overflows, typed": (MODEL_INFER, oip(shape=[2**62, 4], contents=[1])),
}


@pytest.fixture
def client(over_grpc: Daemon) -> Iterator[Client]:
    with Client(over_grpc.ready["grpc"]) as client:
        yield client


@pytest.mark.parametrize("what", BROKEN)
def test_a_message_that_is_broken_is_refused(client: Client, what: str) -> None:
    failure = client.call(*BROKEN[what])
    assert isinstance(failure, Refused)
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT, failure
    assert failure.trailing["x-snooze-code"] in ("invalid_input", "shape_mismatch")
    assert len(failure.message) < 500


def test_a_broken_message_in_a_stream_is_answered_and_the_stream_goes_on(client: Client) -> None:
    bodies = [b"\xff" * 40, x([-1, 4], bytes(16)), GOOD]
    answers = [ModelInferResponse.FromString(m) for m in client.stream(INFER_STREAM, bodies)]
    assert sorted(answer.error.code for answer in answers) == [
        "",
        "invalid_input",
        "shape_mismatch",
    ]


# Clients that do not behave


def _descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def _has_grpcio(daemon: Daemon) -> bool:
    return any("cygrpc" in file for file in processes.mapped_files(daemon.pid))


def broken_messages(client: Client, daemon: Daemon) -> None:
    for method, body in BROKEN.values():
        client.call(method, body)


def cancelled_calls(client: Client, daemon: Daemon) -> None:
    calls = [client.channel.unary_unary(INFER).future(GOOD) for _ in range(4)]
    for call in calls:
        call.cancel()


def reset_streams(client: Client, daemon: Daemon) -> None:
    call = client.channel.stream_stream(INFER_STREAM)(itertools.repeat(GOOD, 20))
    next(call)
    call.cancel()


def half_closed_streams(client: Client, daemon: Daemon) -> None:
    list(client.stream(INFER_STREAM, []))
    with pytest.raises(grpc.RpcError):  # a call that wants one message gets none
        list(client.stream(INFER, []))


def connections_that_break(client: Client, daemon: Daemon) -> None:
    for greeting in (b"", b"GARBAGE\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        host, _, port = daemon.ready["grpc"].rpartition(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(greeting)


@pytest.mark.parametrize(
    ("misbehave", "times"),
    [
        (broken_messages, 60),
        (cancelled_calls, 250),
        (reset_streams, 200),
        (half_closed_streams, 200),
        (connections_that_break, 100),
    ],
)
def test_nothing_leaks(
    over_grpc: Daemon, client: Client, misbehave: Callable[[Client, Daemon], None], times: int
) -> None:
    misbehave(client, over_grpc)
    client.infer("iris", tensor("X", ROW))
    workers = over_grpc.workers()
    for _ in range(times // 4):  # what is allocated once is no leak
        misbehave(client, over_grpc)
    descriptors, memory = _descriptors(over_grpc), processes.resident_bytes(over_grpc.pid)
    for _ in range(times):
        misbehave(client, over_grpc)
    eventually(lambda: _descriptors(over_grpc) <= descriptors + 2, "descriptors are flat")
    # grpcio's threads keep much of what they free; that levels off at some 50 MB.
    limit = 64 * MIB if _has_grpcio(over_grpc) else 4 * MIB
    assert processes.resident_bytes(over_grpc.pid) - memory < limit
    client.infer("iris", tensor("X", ROW))
    assert over_grpc.workers() == workers
    assert [r for r in over_grpc.log() if r["level"] == "error"] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_that_does_not_read_fills_no_memory_and_holds_nothing_up(
    serve: Serve, models_dir: Path, library: str
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve(SNOOZE_GRPC_LIBRARY=library)
    big = request("echo", tensor("x", np.zeros((1, 2**18), np.float32)))  # 1 MiB there and back
    sent = itertools.count()
    hold = threading.Event()

    def bodies() -> Iterator[bytes]:
        while next(sent) < 2000 and not hold.is_set():
            yield big

    with Client(daemon.ready["grpc"]) as client:
        call = client.channel.stream_stream(INFER_STREAM)(bodies())
        next(call)
        before = processes.resident_bytes(daemon.pid)
        hold.wait(3)  # enough to send all of it, if it were read
        assert processes.resident_bytes(daemon.pid) - before < 600 * 2**20
        hold.set()
        call.cancel()
        assert client.infer("echo", tensor("x", np.zeros((1, 1))))
    assert next(sent) < 2000
    assert daemon.stop() == 0


# The end


@pytest.fixture(params=LIBRARIES)
def burning(request: pytest.FixtureRequest, serve: Serve, models_dir: Path) -> Daemon:
    models.burning_model(models_dir / "burning.onnx")
    daemon = serve("[defaults]\nmax_batch_size = 1\n", SNOOZE_GRPC_LIBRARY=request.param)
    with Client(daemon.ready["grpc"]) as client:
        client.infer("burning", tensor("ms", np.array([[1]]), "INT64"))
    return daemon


def burn(milliseconds: int, **members: object) -> bytes:
    return request("burning", tensor("ms", np.array([[milliseconds]]), "INT64"), **members)


def test_a_server_that_stops_answers_what_it_has_accepted(burning: Daemon) -> None:
    def bodies() -> Iterator[bytes]:
        for number in range(4):
            yield burn(100, parameters={"id": str(number)})
        threading.Event().wait(20)  # the client has more to say, but does not say it

    with Client(burning.ready["grpc"]) as client, ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(client.call, INFER, burn(100)) for _ in range(4)]
        stream = client.channel.stream_stream(INFER_STREAM)(bodies())
        watch = client.channel.unary_stream(WATCH)(b"")
        assert next(watch) == b"\x08\x01"
        eventually(lambda: burning.model("burning")["queue_depth"] >= 4, "they wait")
        burning.tree()
        burning.send_signal(SIGTERM)
        assert all(isinstance(call.result(), Reply) for call in calls)
        answers = [ModelInferResponse.FromString(next(stream)) for _ in range(4)]
        assert sorted(answer.parameters["id"] for answer in answers) == list("0123")
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert refused(raised.value).code is grpc.StatusCode.UNAVAILABLE
        assert next(watch) == b"\x08\x02"
        assert burning.wait() == 0


def test_a_server_that_stops_refuses_new_calls(burning: Daemon) -> None:
    with Client(burning.ready["grpc"]) as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.call, INFER, burn(1500))
        eventually(lambda: burning.model("burning")["state"] == "busy", "it runs")
        burning.tree()
        burning.send_signal(SIGTERM)
        eventually(lambda: client.call(CHECK, b"") == (b"\x08\x02", {}), "it is not serving")
        failure = client.call(INFER, burn(1))
        assert isinstance(failure, Refused)
        assert failure.code is grpc.StatusCode.UNAVAILABLE
        assert "shutting down" in failure.message
        assert isinstance(running.result(), Reply)
        assert burning.wait() == 0


def test_ports_and_switches(serve: Serve, models_dir: Path) -> None:
    assert serve(SNOOZE_GRPC="false").ready["grpc"] is None
    taken = serve().ready["grpc"].rpartition(":")[2]
    with pytest.raises(AssertionError, match=rf"cannot listen on 127.0.0.1:{taken}.*--grpc-port"):
        Daemon(models_dir, models_dir / "cache", env=dict(os.environ), grpc_port=int(taken))
