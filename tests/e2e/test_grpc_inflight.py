"""What all clients of gRPC hold together is bounded, and given back once, however a call ends."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final

import grpc
import numpy as np
import pytest

import models
from e2e import processes
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.gate import until_waiting
from e2e.grpc_client import (
    INFER,
    INFER_STREAM,
    MODEL_INFER,
    Client,
    Refused,
    Reply,
    outputs,
    refused,
    request,
    tensor,
)
from snoozeml.wire.proto.snoozeml_pb2 import ModelInferResponse

FIT: Final = 4
"""Messages of the size in question that have room together; the settings say so."""

ROW: Final = np.arange(237_500, dtype=np.float32)[None]  # 950 kB
BODY: Final = request("echo", tensor("x", ROW))
IN_FLIGHT: Final = 2
"""Of them, so many are in the worker's hands: two batches."""

MIB: Final = 2**20


def settings(largest_bytes: int, together_bytes: int) -> str:
    return f"""
        [server]
        max_request_bytes = {largest_bytes}
        max_inflight_bytes = {together_bytes}
        [defaults]
        idle_timeout_secs = 0
        max_batch_size = 1
    """


@pytest.fixture(scope="module", params=["native", "grpcio"])
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache_dir: Path
) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("models")
    models.identity_model(folder / "echo.onnx")
    (folder / "models.toml").write_text(settings(1_000_000, 4_000_000))
    with Daemon(folder, cache_dir, env={"SNOOZE_GRPC_LIBRARY": request.param}) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with Client(daemon.ready["grpc"]) as client:
        client.infer("echo", tensor("x", np.zeros((1, 1))))
        yield client


def until_held(daemon: Daemon, messages: int) -> None:
    """Return once the daemon holds so many for its frozen worker."""
    until_waiting(daemon, "echo", messages - IN_FLIGHT)


def until_withdrawn(daemon: Daemon) -> None:
    until_waiting(daemon, "echo", 0)


def calls(client: Client, count: int, body: bytes = BODY) -> list[Any]:
    ask = client.channel.unary_unary(INFER)
    return [ask.future(body, timeout=30.0) for _ in range(count)]


def streaming(client: Client, count: int) -> Any:
    """A stream that asks, and then has nothing to say for a long time."""

    def bodies() -> Iterator[bytes]:
        yield from itertools.repeat(BODY, count)
        Event().wait(3)

    return client.channel.stream_stream(INFER_STREAM)(bodies(), timeout=30.0)


def check_that_just_four_fit(daemon: Daemon, client: Client) -> None:
    """Nothing is counted any more of what came before, and nothing has been given back twice."""
    with processes.frozen(daemon.worker()):
        asked = calls(client, 2 * FIT)
        eventually(lambda: sum(not call.done() for call in asked) == FIT, "all others are refused")
        codes = [call.code() for call in asked if call.done()]
    assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED] * FIT
    assert sum(call.code() is grpc.StatusCode.OK for call in asked) == FIT


@pytest.mark.parametrize("library", ["native", "grpcio"])
def test_many_large_messages_for_a_slow_model_take_bounded_memory(
    serve: Serve, models_dir: Path, library: str
) -> None:
    """The daemon keeps those that have room, and nothing of the others."""
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve(settings(17_000_000, 68_000_000), SNOOZE_GRPC_LIBRARY=library)
    row = np.arange(4 * MIB, dtype=np.float32)[None]
    body = request("echo", tensor("x", row))

    with ExitStack() as stack:
        clients = [stack.enter_context(Client(daemon.ready["grpc"])) for _ in range(16)]
        clients[0].infer("echo", tensor("x", np.zeros((1, 1))))
        before = processes.resident_bytes(daemon.pid)
        with processes.frozen(daemon.worker()):
            held = calls(clients[0], FIT, body)
            until_held(daemon, FIT)
            outcomes = [client.call(INFER, body) for client in clients * 3]
            assert processes.resident_bytes(daemon.pid) - before < (FIT + 12) * len(body)
            at_once = [call for client in clients for call in calls(client, 1, body)]
            outcomes += [refused(call.exception()) for call in at_once]
        for outcome in outcomes:
            assert isinstance(outcome, Refused)
            assert outcome.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert outcome.trailing["x-snooze-code"] == "overloaded"
            assert int(outcome.trailing["retry-after"]) >= 1
            assert "68000000 bytes together (max_inflight_bytes)" in outcome.message
        for call in held:
            np.testing.assert_array_equal(outputs(call.result())["y"], row)
        assert isinstance(clients[0].call(INFER, body), Reply)
    daemon.control("echo", "unload")
    eventually(
        lambda: processes.resident_bytes(daemon.pid) - before < 3 * len(body),
        "what they took is free again",
    )


def test_answers_give_back(daemon: Daemon, client: Client) -> None:
    for _ in range(2):
        check_that_just_four_fit(daemon, client)


def test_failures_give_back(daemon: Daemon, client: Client) -> None:
    wrong = [
        request("echo", tensor("z", ROW)),  # found by the worker
        request("nobody", tensor("x", ROW)),  # found by the daemon
        b"\xff" + BODY,
    ]
    for body, method in itertools.product(wrong, [INFER, MODEL_INFER]):
        assert isinstance(client.call(method, body), Refused)
    check_that_just_four_fit(daemon, client)


def test_deadlines_give_back(daemon: Daemon, client: Client) -> None:
    with processes.frozen(daemon.worker()):
        held = calls(client, FIT, BODY + b"\x18\xf4\x03")  # with a time limit of half a second
        until_held(daemon, FIT)
        assert {call.code() for call in held} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    check_that_just_four_fit(daemon, client)


def test_calls_that_are_cancelled_give_back(daemon: Daemon, client: Client) -> None:
    with processes.frozen(daemon.worker()):
        held = calls(client, FIT)
        until_held(daemon, FIT)
        for call in held:
            call.cancel()
        until_withdrawn(daemon)
    check_that_just_four_fit(daemon, client)


def test_what_a_worker_held_that_died_is_given_back_once(daemon: Daemon, client: Client) -> None:
    worker = daemon.worker()
    with processes.frozen(worker):
        held = calls(client, FIT)
        until_held(daemon, FIT)
        os.kill(worker, signal.SIGKILL)
    assert [outputs(call.result())["y"].size for call in held] == [ROW.size] * FIT
    check_that_just_four_fit(daemon, client)


@contextmanager
def held_by_streams(daemon: Daemon, client: Client) -> Iterator[list[Any]]:
    """Four messages of four streams that go on, in the hands of a frozen worker."""
    with processes.frozen(daemon.worker()):
        streams = [streaming(client, 1) for _ in range(FIT)]
        until_held(daemon, FIT)
        yield streams


def test_streams_that_end_early_give_back(daemon: Daemon, client: Client) -> None:
    with held_by_streams(daemon, client) as streams:
        for stream in streams:
            stream.cancel()
        until_withdrawn(daemon)
    check_that_just_four_fit(daemon, client)


def test_answers_in_streams_give_back(daemon: Daemon, client: Client) -> None:
    with held_by_streams(daemon, client) as streams:
        pass
    for stream in streams:
        assert outputs(next(stream))["y"].size == ROW.size
    check_that_just_four_fit(daemon, client)  # while the streams still last
    for stream in streams:
        stream.cancel()


def test_a_message_of_a_stream_for_which_there_is_no_room(daemon: Daemon, client: Client) -> None:
    """It is refused under its id, the stream goes on, and what is held is answered."""
    named = request("echo", tensor("x", ROW), parameters={"id": "seven"})
    goes_on = Event()

    def bodies() -> Iterator[bytes]:
        yield named
        goes_on.wait(10)
        yield named

    with processes.frozen(daemon.worker()):
        held = calls(client, FIT)
        until_held(daemon, FIT)
        stream = client.stream(INFER_STREAM, bodies())
        answer = ModelInferResponse.FromString(next(stream))
    assert answer.error.code == "overloaded"
    assert "max_inflight_bytes" in answer.error.message
    assert answer.parameters["id"] == "seven"
    assert [call.code() for call in held] == [grpc.StatusCode.OK] * FIT
    goes_on.set()
    assert [outputs(body)["y"].size for body in stream] == [ROW.size]
    check_that_just_four_fit(daemon, client)


def test_a_stream_with_more_to_ask_waits_for_its_own_answers(
    daemon: Daemon, client: Client
) -> None:
    """None of its requests is refused for those that came before it."""
    with processes.frozen(daemon.worker()):
        held = calls(client, FIT - 1)
        until_held(daemon, FIT - 1)
        stream = client.stream(INFER_STREAM, itertools.repeat(BODY, 3 * FIT))
        until_held(daemon, FIT)
        Event().wait(0.5)  # in which it could ask for more
    assert [outputs(body)["y"].size for body in stream] == [ROW.size] * 3 * FIT
    assert [call.code() for call in held] == [grpc.StatusCode.OK] * (FIT - 1)
    check_that_just_four_fit(daemon, client)


def test_one_message_has_room_in_any_case(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve(settings(1_000_000, 1))
    with Client(daemon.ready["grpc"]) as client:
        client.infer("echo", tensor("x", ROW))
        too_large = client.call(INFER, BODY + BODY)
        assert isinstance(too_large, Refused)
        assert "max_request_bytes" in too_large.message, "it is not told to try again"
