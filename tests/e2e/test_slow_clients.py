"""Clients that are slow, silent, too many or too greedy: refused in words, and in nobody's way."""

import asyncio
import contextlib
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.client import Address, Connection, infer_body, request_bytes, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon, path
from e2e.eventually import eventually
from e2e.tricklers import latencies_s, trickling
from e2e.uploading import upload

INFER = path("echo", "infer")
SHORT = """
[server]
header_timeout_secs = 0.5
transfer_timeout_secs = 1.0
keep_alive_secs = 1.5
min_transfer_rate = 100_000
"""
SLACK_S = 3.0  # whoever is too slow is found within a second; the machine may be busy


@pytest.fixture
def models_dir(models_dir: Path) -> Path:
    models.identity_model(models_dir / "echo.onnx")
    return models_dir


def _refusal(connection: Connection, status: int, code: str, *words: str) -> None:
    reply = connection.reply()
    assert (reply.status, reply.json()["code"]) == (status, code)
    assert reply.headers["connection"] == "close"
    for word in words:
        assert word in reply.json()["error"]
    assert connection.ended()


def _head(length: int) -> bytes:
    return request_bytes("POST", INFER, b"", {"Content-Length": str(length)})


@contextmanager
def _took(at_least_s: float, at_most_s: float) -> Iterator[None]:
    started_at = time.monotonic()
    yield
    assert at_least_s <= time.monotonic() - started_at <= at_most_s + SLACK_S


def test_a_head_that_does_not_come_to_an_end(serve: Serve) -> None:
    with serve(SHORT).connect() as connection, _took(0.5, 0.5):
        connection.send(b"GET /health/live HTTP/1.1\r\nHost: x\r\n")
        _refusal(connection, 408, "request_timeout", "0.5 s", "header_timeout_secs")


def test_a_head_that_trickles_has_no_longer(serve: Serve) -> None:
    with serve(SHORT).connect() as connection, _took(0.5, 0.5):
        with contextlib.suppress(ConnectionError):
            for byte in request_bytes("GET", "/health/live", None, {"X": "y" * 100})[:-1]:
                connection.send(bytes([byte]))
                time.sleep(0.05)
        connection.ended()


def test_a_body_that_stops_half_way(serve: Serve) -> None:
    with serve(SHORT).connect() as connection, _took(1.0, 1.0):
        connection.send(_head(100) + b"{")
        _refusal(connection, 408, "request_timeout", "transfer_timeout_secs", "min_transfer_rate")


def test_a_body_that_moves_may_take_its_time(serve: Serve) -> None:
    body = infer_body(tensor("x", [1, 1], [1]), parameters={"pad": "." * 600_000})
    with serve(SHORT).connect() as connection:
        connection.send(_head(len(body)))
        for start in range(0, len(body), 60_000):
            connection.send(body[start : start + 60_000])
            time.sleep(0.25)  # 240 kB/s, and more than twice as long as a trickle may take
        assert connection.reply().outputs() == {"y": [1]}


def test_a_connection_that_says_nothing_is_closed(serve: Serve) -> None:
    with serve(SHORT).connect() as connection, _took(1.5, 1.5):
        assert connection.ended()


def test_an_idle_connection_is_closed(serve: Serve) -> None:
    with serve(SHORT).connect() as connection:
        assert connection.request("GET", "/health/live").status == 200
        with _took(1.4, 1.5):
            assert connection.ended()


def test_a_connection_whose_body_came_after_its_answer_is_closed_when_idle(serve: Serve) -> None:
    with serve(SHORT, SNOOZE_API_KEY="key").connect() as connection:
        connection.send(_head(5) + b"1234")
        assert connection.reply().status == 401
        connection.send(b"5")
        with _took(0.0, 1.5):
            assert connection.ended()


def test_a_request_behind_a_body_that_was_refused_may_take_its_time(
    serve: Serve, models_dir: Path
) -> None:
    models.slow_model(models_dir / "slow.onnx", 400)
    daemon = serve("[server]\nkeep_alive_secs = 0.2\n", SNOOZE_API_KEY="key")
    target, one = path("slow", "infer"), infer_body(tensor("x", [1, 1], [1]))
    with daemon.connect() as connection:
        connection.send(_head(5) + b"1234")
        assert connection.reply().status == 401
        connection.send(b"5" + request_bytes("POST", target, one, {"X-API-Key": "key"}))
        assert connection.reply().outputs() == {"y": [1]}


def test_a_body_that_stops_after_its_answer_gets_no_second_one(serve: Serve) -> None:
    with serve(SHORT, SNOOZE_API_KEY="key").connect() as connection:
        connection.send(_head(5) + b"1")
        assert connection.reply().status == 401
        with _took(0.0, 1.0):
            assert connection.ended()


@pytest.mark.parametrize("close", [False, True], ids=["kept alive", "to be closed"])
def test_a_large_answer_that_nobody_reads_is_not_held_for_ever(serve: Serve, close: bool) -> None:
    rows = 1_500_000
    body = infer_body(tensor("x", [rows, 1], [0.123456789] * rows))
    daemon = serve(SHORT)
    daemon.control("echo", "load")
    before = processes.resident_bytes(daemon.pid)
    with _narrow(daemon.address) as client:
        headers = {"Connection": "close"} if close else {}
        client.sendall(request_bytes("POST", INFER, body, headers))
        eventually(
            lambda: processes.resident_bytes(daemon.pid) > before + len(body) // 2, "it is there"
        )
        eventually(lambda: not _connections(daemon), "the connection is cut", within_s=20)


@contextmanager
def _narrow(address: Address) -> Iterator[socket.socket]:
    """A client with so small a buffer that answers stay with the daemon."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect(address)
        yield client


def _connections(daemon: Daemon) -> int:
    fds = Path(f"/proc/{daemon.pid}/fd").iterdir()
    listening = daemon.address[1]
    inodes = set()
    for fd in fds:
        with contextlib.suppress(OSError):
            inodes.add(str(fd.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        f"socket:[{row[9]}]" in inodes and row[1].endswith(f":{listening:04X}") and row[3] == "01"
        for row in rows
    )


def test_too_many_connections_make_room_for_new_ones(serve: Serve) -> None:
    daemon = serve("[server]\nmax_connections = 4\n")
    with ExitStack() as stack:
        idle = [stack.enter_context(daemon.connect()) for _ in range(4)]
        for connection in idle:
            assert connection.request("GET", "/health/live").status == 200
            time.sleep(0.01)  # the daemon's clock counts milliseconds
        newcomer = stack.enter_context(daemon.connect())
        assert newcomer.request("GET", "/v1/models").status == 200
        assert idle[0].ended()  # the one that was idle longest
        assert idle[1].request("GET", "/health/live").status == 200


def test_where_all_are_being_served_only_health_is_told(serve: Serve, models_dir: Path) -> None:
    models.slow_model(models_dir / "slow.onnx", 1500)
    daemon = serve("[server]\nmax_connections = 2\n[models.slow]\nrequest_timeout_secs = 300\n")
    daemon.control("slow", "load")
    question = request_bytes("POST", path("slow", "infer"), infer_body(tensor("x", [1, 1], [1])))
    with daemon.connect() as one, daemon.connect() as two:
        for connection in (one, two):
            connection.send(question)
        time.sleep(0.2)
        with daemon.connect() as newcomer:
            assert newcomer.request("GET", "/health/ready").status == 200
            newcomer.send(question)
            _refusal(newcomer, 503, "overloaded", "max_connections")
        assert [connection.reply().status for connection in (one, two)] == [200, 200]


def test_bodies_together_are_bounded_and_the_oldest_gives_way(serve: Serve) -> None:
    daemon = serve("[server]\nmax_inflight_bytes = 1_000_000\nmax_request_bytes = 800_000\n")
    good = infer_body(tensor("x", [1, 1], [1]), parameters={"pad": "." * 500_000})
    with daemon.connect() as greedy:
        greedy.send(_head(700_000) + b" " * 600_000)
        time.sleep(0.2)
        assert daemon.request("POST", INFER, good).outputs() == {"y": [1]}
        _refusal(greedy, 503, "overloaded", "max_inflight_bytes")
    assert daemon.request("POST", INFER, good).outputs() == {"y": [1]}


def test_a_daemon_with_few_descriptors_says_so_and_takes_fewer(serve: Serve) -> None:
    daemon = serve("[server]\nmax_connections = 1000000\n")
    with daemon.connect() as connection:
        assert connection.request("GET", "/health/live").status == 200
    (warning,) = [r for r in daemon.log() if "file descriptors" in str(r)]
    assert "max_connections = 1000000" in str(warning)


def test_a_thousand_slow_clients_do_not_keep_others_out(serve: Serve) -> None:
    daemon = serve("[server]\nheader_timeout_secs = 60\ntransfer_timeout_secs = 60\n")
    daemon.control("echo", "load")
    body = infer_body(tensor("x", [1, 1], [1]))

    async def scene() -> tuple[float, float]:
        usual = await latencies_s(daemon.address, INFER, body, seconds=4)
        async with trickling(daemon.address, INFER, clients=1000):
            crowded = await latencies_s(daemon.address, INFER, body, seconds=4)
        return statistics.median(usual), statistics.median(crowded)

    usual, crowded = asyncio.run(scene())
    # A machine with other work is noisy at the scale of a millisecond.
    assert crowded <= 2 * usual + 0.001, (usual, crowded)


def test_an_upload_is_not_held_in_memory_and_so_may_be_larger(
    serve: Serve, models_dir: Path, tmp_path: Path
) -> None:
    model = models.identity_model(tmp_path / "sent.onnx").read_bytes()
    # A string that the format allows anywhere, and ignores: field 6, `doc_string`, of 4 MB.
    padded = model + b"\x32\x80\x80\x80\x02" + b"." * (2 << 21)
    daemon = serve("[server]\nmax_inflight_bytes = 1_000_000\nmax_request_bytes = 800_000\n")
    assert upload(daemon, padded, "sent.onnx").status == 200
    assert daemon.infer("sent", tensor("x", [1, 1], [1])).outputs() == {"y": [1]}


def test_garbage_behind_a_request_that_is_being_served_is_no_error_of_ours(serve: Serve) -> None:
    daemon = serve()
    question = request_bytes("POST", INFER, infer_body(tensor("x", [1, 1], [1])))
    with daemon.connect() as connection:
        connection.send(2 * question + b"garbage\r\n\r\n")
        _refusal(connection, 400, "invalid_input")
    assert daemon.request("POST", INFER, infer_body(tensor("x", [1, 1], [1]))).status == 200
    assert [r for r in daemon.log() if r.get("level") in ("error", "ERROR")] == []
