"""What one client of gRPC may have open, and how slow it may be."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

import models
from certificates import TlsFolder
from e2e import processes
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.grpc_client import (
    CHECK,
    INFER,
    INFER_STREAM,
    WATCH,
    Client,
    Reply,
    refused,
    request,
    tensor,
)
from e2e.http2 import (
    ACK,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
    Http2,
    Kind,
    calling,
    frame,
    greeting,
    message,
    settings_of,
)

LIBRARIES = ("native", "grpcio")
REFUSED_STREAM, ENHANCE_YOUR_CALM = 7, 11
MIB = 2**20
SHORT = """
[server]
header_timeout_secs = 0.5
transfer_timeout_secs = 1.0
keep_alive_secs = 1.0
min_transfer_rate = 1_000_000_000
"""

LARGE = request("echo", tensor("x", np.zeros((1, 2**18))))  # 1 MiB there and back


@pytest.fixture
def models_dir(models_dir: Path) -> Path:
    models.identity_model(models_dir / "echo.onnx")
    return models_dir


def shaken_hands(address: str) -> Http2:
    connection = Http2(address)
    connection.write(greeting())
    connection.first(Kind.SETTINGS)
    connection.send(Kind.SETTINGS, ACK)
    return connection


def is_served(address: str) -> bool:
    with Client(address) as client:
        return isinstance(client.call(CHECK, b""), Reply)


def test_clients_are_told_what_they_may(over_grpc: Daemon) -> None:
    with Http2(over_grpc.ready["grpc"]) as connection:
        connection.write(greeting())
        told = settings_of(connection.first(Kind.SETTINGS))
    assert told[MAX_CONCURRENT_STREAMS] == 1024
    assert told[MAX_HEADER_LIST_SIZE] == 16 * 1024


def test_calls_beyond_the_limit_are_refused_and_the_others_go_on(over_grpc: Daemon) -> None:
    with shaken_hands(over_grpc.ready["grpc"]) as connection:
        for number in range(1026):
            connection.write(calling(2 * number + 1, CHECK))
        refusals = [connection.first(Kind.RST_STREAM) for _ in range(2)]
        assert [frame.stream for frame in refusals] == [2049, 2051]
        assert {frame.payload[3] for frame in refusals} == {REFUSED_STREAM}
        connection.write(message(1, b""))
        assert connection.first(Kind.DATA).stream == 1


def test_a_thousand_calls_of_one_client_wait_for_each_other(over_grpc: Daemon) -> None:
    with Client(over_grpc.ready["grpc"]) as client:
        ask = client.channel.unary_unary(CHECK)
        assert {call.result() for call in [ask.future(b"") for _ in range(1000)]} == {b"\x08\x01"}


def test_metadata_beyond_the_limit_is_refused_and_the_connection_goes_on(
    over_grpc: Daemon,
) -> None:
    with shaken_hands(over_grpc.ready["grpc"]) as connection:
        connection.write(calling(1, CHECK, {"x": "y" * 15_000}))
        connection.write(message(1, b""))
        assert connection.first(Kind.DATA).stream == 1
        connection.write(calling(3, CHECK, {"x": "y" * 17_000}))
        assert connection.first(Kind.RST_STREAM).stream == 3
        connection.write(calling(5, CHECK))
        connection.write(message(5, b""))
        assert connection.first(Kind.DATA).stream == 5


def test_metadata_without_end_is_hung_up_on(over_grpc: Daemon) -> None:
    before = processes.resident_bytes(over_grpc.pid)
    more = frame(Kind.CONTINUATION, 0, 1, b"\0\1x\x7f\x81\x4d" + b"y" * 10_000)
    with shaken_hands(over_grpc.ready["grpc"]) as connection:
        connection.send(Kind.HEADERS, stream=1)
        with pytest.raises(ConnectionError):
            connection.write(more * 10_000)
    assert processes.resident_bytes(over_grpc.pid) - before < 8 * MIB
    assert is_served(over_grpc.ready["grpc"])


def test_calls_that_are_reset_at_once_take_no_memory_and_hold_nobody_up(over_grpc: Daemon) -> None:
    address = over_grpc.ready["grpc"]

    def flood() -> None:
        with shaken_hands(address) as connection, contextlib.suppress(ConnectionError):
            for number in range(5000):
                connection.write(calling(2 * number + 1, CHECK))
                connection.send(Kind.RST_STREAM, 0, 2 * number + 1, b"\0\0\0\x08")

    def flooded() -> int:
        floods = [threading.Thread(target=flood) for _ in range(4)]
        for thread in floods:
            thread.start()
        assert is_served(address)
        for thread in floods:
            thread.join()
        assert is_served(address)  # once all that came before has been taken up
        return processes.resident_bytes(over_grpc.pid)

    before = flooded()
    assert flooded() - before < 16 * MIB


def test_a_client_that_pings_all_the_time_is_hung_up_on(serve: Serve) -> None:
    address = serve(SNOOZE_GRPC_LIBRARY="grpcio").ready["grpc"]
    with shaken_hands(address) as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                connection.send(Kind.PING, payload=b"12345678")
        assert connection.first(Kind.GOAWAY).payload[4:8] == bytes([0, 0, 0, ENHANCE_YOUR_CALM])
    assert is_served(address)


def test_connections_beyond_the_limit_are_hung_up_on(serve: Serve) -> None:
    daemon = serve("[server]\nmax_connections = 3\n", SNOOZE_GRPC_LIBRARY="grpcio")
    address = daemon.ready["grpc"]
    with ExitStack() as stack:
        held = [stack.enter_context(shaken_hands(address)) for _ in range(3)]
        with Http2(address) as fourth:
            assert list(fourth.frames()) == []
        held[0].__exit__()
        eventually(lambda: is_served(address), "there is room again")


def test_a_client_that_does_not_say_hello_is_hung_up_on(serve: Serve) -> None:
    daemon = serve(SHORT, SNOOZE_GRPC_LIBRARY="grpcio")
    with Http2(daemon.ready["grpc"]) as connection:
        assert connection.first(Kind.GOAWAY)
        assert list(connection.frames()) == []


def test_a_tls_handshake_that_does_not_come_to_an_end(serve: Serve, tmp_path: Path) -> None:
    files = TlsFolder.make(tmp_path / "tls")
    with Http2(serve(SHORT, **files.environment()).ready["grpc"]) as connection:
        assert list(connection.frames()) == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_connection_without_calls_is_closed_and_its_client_comes_back(
    serve: Serve, library: str
) -> None:
    """By grpcio, that is; with pygrpc-native it happens behind the scenes, and nobody sees it."""
    hasty = serve(SHORT, SNOOZE_GRPC_LIBRARY=library)
    body = request("echo", tensor("x", np.zeros((1, 1))))
    with Client(hasty.ready["grpc"]) as client, shaken_hands(hasty.ready["grpc"]) as idle:
        assert len(list(client.stream(INFER_STREAM, [body]))) == 1
        if library == "grpcio":
            assert b"idle" in idle.first(Kind.GOAWAY).payload
        descriptors = _descriptors(hasty)
        eventually(lambda: _descriptors(hasty) < descriptors, "its descriptors are free again")
        assert len(list(client.stream(INFER_STREAM, [body]))) == 1
        assert isinstance(client.call(CHECK, b""), Reply)


def _descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("method", [CHECK, WATCH])
def test_a_client_that_is_gone_without_a_word_is_found_out(
    serve: Serve, library: str, method: str
) -> None:
    hasty = serve(SHORT, SNOOZE_GRPC_LIBRARY=library)
    with shaken_hands(hasty.ready["grpc"]) as connection:
        connection.write(calling(1, method))  # and the client's machine loses its power
        kinds = [frame.kind for frame in connection.frames()]
        assert Kind.PING in kinds


def test_a_message_that_does_not_come_to_an_end(serve: Serve) -> None:
    daemon = serve(SHORT, SNOOZE_GRPC_LIBRARY="grpcio")

    def nothing() -> Iterator[bytes]:
        threading.Event().wait(5)
        yield b""

    with Client(daemon.ready["grpc"]) as client:
        started_at = time.monotonic()
        with pytest.raises(grpc.RpcError) as raised:
            client.channel.stream_unary(INFER)(nothing())
        assert time.monotonic() - started_at < 4
    failure = refused(raised.value)
    assert failure.trailing["x-snooze-code"] == "request_timeout"
    assert "transfer_timeout_secs" in failure.message


@pytest.mark.parametrize("method", [INFER, INFER_STREAM])
def test_an_answer_that_nobody_makes_room_for_is_not_held_for_ever(
    serve: Serve, method: str
) -> None:
    daemon = serve(SHORT, SNOOZE_GRPC_LIBRARY="grpcio")
    with Http2(daemon.ready["grpc"]) as connection:
        connection.write(greeting({INITIAL_WINDOW_SIZE: 0}))
        connection.first(Kind.SETTINGS)
        connection.send(Kind.SETTINGS, ACK)
        connection.write(calling(1, method))
        connection.write(message(1, LARGE))
        for seen in connection.frames():  # until the daemon hangs up
            if seen.kind == Kind.PING and not seen.flags & ACK:
                connection.send(Kind.PING, ACK, payload=seen.payload)
    assert is_served(daemon.ready["grpc"])
    assert [record for record in daemon.log() if record["level"] == "error"] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stream_whose_answers_nobody_reads_is_cut_off(serve: Serve, library: str) -> None:
    daemon = serve(SHORT, SNOOZE_GRPC_LIBRARY=library)
    with Client(daemon.ready["grpc"]) as client:
        call = client.channel.stream_stream(INFER_STREAM)(itertools.repeat(LARGE))
        next(call)
        threading.Event().wait(3)  # thrice as long as the daemon is patient
        with pytest.raises(grpc.RpcError):
            list(itertools.islice(call, 100))
        assert isinstance(client.call(INFER, LARGE), Reply)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("slow", ["model", "client"])
def test_a_stream_takes_no_more_memory_than_a_few_of_its_messages(
    serve: Serve, library: str, slow: str
) -> None:
    """Of 640 MB that the client has to say, the daemon holds little while nothing moves on."""
    daemon = serve("[server]\nmax_request_bytes = 16_000_000\n", SNOOZE_GRPC_LIBRARY=library)
    large = request("echo", tensor("x", np.zeros((1, 3_990_000))))
    sent = itertools.count()

    def bodies() -> Iterator[bytes]:
        while next(sent) < 40:
            yield large

    with Client(daemon.ready["grpc"]) as client, ExitStack() as stack:
        assert len(list(client.stream(INFER_STREAM, [large]))) == 1, "it may be as large as that"
        before = processes.resident_bytes(daemon.pid)
        if slow == "model":
            stack.enter_context(processes.frozen(daemon.worker()))
        call = client.channel.stream_stream(INFER_STREAM)(bodies())
        threading.Event().wait(2)
        assert processes.resident_bytes(daemon.pid) - before < 12 * len(large)
        stack.close()
        assert sum(1 for _ in call) == 40
