"""What stalls, hangs, lies or comes at the wrong moment holds nothing up and leaks nothing."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.client import infer_body, request_bytes, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually

ONE = tensor("x", [1, 1], [1.0])
MIB = 1 << 20


@pytest.fixture
def echo(serve: Serve, models_dir: Path) -> Daemon:
    models.identity_model(models_dir / "echo.onnx")
    return serve("[server]\ndrain_timeout_secs = 3\n")


def _chunked(target: str, *extra: str) -> bytes:
    head = (f"POST {target} HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", *extra)
    return "\r\n".join((*head, "", "")).encode()


def test_endless_trailers_are_cut_off(echo: Daemon) -> None:
    before = processes.resident_bytes(echo.pid)
    with echo.connect() as connection, contextlib.suppress(OSError):
        connection.send(_chunked("/v1/models/nope/infer") + b"2\r\n{}\r\n0\r\n")
        for _ in range(300):
            connection.send(b"a: b\r\n" * 20_000)
    assert processes.resident_bytes(echo.pid) < before + 8 * MIB


def test_one_endless_trailer_is_cut_off(echo: Daemon) -> None:
    before = processes.resident_bytes(echo.pid)
    with echo.connect() as connection, contextlib.suppress(OSError):
        connection.send(_chunked("/v1/models/echo/infer") + b"2\r\n{}\r\n0\r\na: ")
        for _ in range(300):
            connection.send(b"b" * 100_000)
    assert processes.resident_bytes(echo.pid) < before + 8 * MIB


def test_a_trailer_is_no_header(echo: Daemon) -> None:
    body = infer_body(ONE)
    with echo.connect() as connection:
        connection.send(
            _chunked("/v1/models/echo/infer")
            + b"%x\r\n%s\r\n0\r\nContent-Type: text/plain\r\n\r\n" % (len(body), body)
        )
        assert connection.reply().status == 200


def test_a_body_in_chunks_of_one_byte_is_taken(echo: Daemon) -> None:
    data = [float(number) for number in range(3000)]
    body = infer_body(tensor("x", [3000, 1], data))
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with echo.connect() as connection:
        connection.send(_chunked("/v1/models/echo/infer") + chunks + b"0\r\n\r\n")
        assert connection.reply().outputs() == {"y": data}


def test_an_offer_of_http_2_is_ignored_or_refused_in_plain_words(echo: Daemon) -> None:
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAM"}
    assert echo.request("GET", "/health/live", headers=offer).status == 200
    reply = echo.infer("echo", ONE, headers=offer)
    assert reply.status == 400
    assert "without the Upgrade header" in reply.json()["error"]


def test_a_body_that_looks_like_a_head_arrives_whole_wherever_it_is_cut(echo: Daemon) -> None:
    body = infer_body(ONE, note="\r\nUpgrade: h2c\r\n\r\nPOST / HTTP/1.1")
    request = request_bytes("POST", "/v1/models/echo/infer", body)
    for cut in range(0, len(request), 7):
        with echo.connect() as connection:
            connection.send(request[:cut])
            connection.send(request[cut:])
            assert connection.reply().outputs() == {"y": [1.0]}


def test_a_time_limit_counts_beside_numbers_that_json_does_not_know(echo: Daemon) -> None:
    echo.control("echo", "load")
    body = b'{"timeout_ms": 200, "inputs": [{"name": "x", "shape": [1, 1], "data": [NaN]}]}'
    with processes.frozen(echo.worker()):
        started = time.monotonic()
        assert echo.request("POST", "/v1/models/echo/infer", body).status == 504
        assert time.monotonic() - started < 2


def test_bodies_are_not_kept_after_their_answer(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve("[defaults]\nidle_timeout_secs = 0.2\n")
    row = ", ".join(["0.5"] * 1_000_000)
    body = f'{{"inputs": [{{"name": "x", "shape": [1000000, 1], "data": [{row}]}}]}}'.encode()
    assert daemon.infer("echo", ONE).status == 200
    before = processes.resident_bytes(daemon.pid)
    for _ in range(8):
        reply = daemon.request(
            "POST", "/v1/models/echo/infer", body, {"X-Request-Timeout-Ms": "86400000"}
        )
        assert reply.status == 200
    eventually(lambda: daemon.model("echo")["state"] == "idle", "the model sleeps")
    assert processes.resident_bytes(daemon.pid) < before + 24 * MIB


@pytest.mark.parametrize("shape", [[1 << 40, 0], [0, 1 << 60], [100_000_000, 0], [0, 1 << 62]])
def test_sizes_that_no_data_backs_are_refused_at_once(echo: Daemon, shape: list[int]) -> None:
    started = time.monotonic()
    reply = echo.infer("echo", tensor("x", shape, []))
    assert (reply.status, reply.json()["code"]) == (400, "shape_mismatch")
    assert time.monotonic() - started < 5
    assert echo.infer("echo", ONE).outputs() == {"y": [1.0]}
    assert echo.model("echo")["loads"] == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"timeout_ms": 1000, "inputs": ' + b"[" * 100_000,
        b'{"inputs": [{"name": "x", "shape": [1, 1], "data": [1e99999999999999999999]}]}',
    ],
    ids=["deep", "huge exponent"],
)
def test_json_at_the_limits_of_its_parsers_is_the_clients_fault(echo: Daemon, body: bytes) -> None:
    assert echo.request("POST", "/v1/models/echo/infer", body).status == 400


def test_a_spare_that_hangs_is_replaced(serve: Serve, models_dir: Path) -> None:
    names = ["one", "two", "three", "four"]
    for name in names:
        models.identity_model(models_dir / f"{name}.onnx")
    daemon = serve("[server]\nmax_concurrent_loads = 2\n[defaults]\nload_timeout_secs = 5\n")
    assert daemon.infer("one", ONE).status == 200
    spare, worker = daemon.spare(), daemon.worker()
    os.kill(spare, signal.SIGSTOP)
    with ThreadPoolExecutor(3) as pool:
        replies = list(pool.map(lambda name: daemon.infer(name, ONE), names[1:]))
    assert [reply.status for reply in replies] == [200] * 3
    assert [daemon.model(name)["loads"] for name in names] == [1] * 4
    assert not processes.alive(spare)
    (error,) = (line for line in daemon.log() if line["level"] == "error")
    assert error["event"] == "spare lost"
    assert daemon.control("one", "unload")["status"] == "unloaded"
    assert not processes.alive(worker)
    before = daemon.workers()
    daemon.control("one", "load")
    (worker,) = set(daemon.workers()) - set(before)
    assert processes.parent(worker) == daemon.spare()


def test_a_spare_that_hangs_from_the_start_costs_no_answer(
    serve: Serve, models_dir: Path, tmp_path: Path
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif 'snoozeml.worker.spare' in sys.orig_argv: time.sleep(1000)\n"
    )
    path = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    daemon = serve(PYTHONPATH=os.pathsep.join(filter(None, path)))
    (spare,) = eventually(daemon.spares, "it starts, and hangs")
    assert daemon.infer("echo", ONE).status == 200
    daemon.control("echo", "unload")
    started = time.monotonic()
    assert daemon.infer("echo", ONE).status == 200
    assert time.monotonic() - started < 3, "it is not waited for again"
    assert daemon.spares() == [spare]
    started = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - started < 3


def test_a_spare_that_hangs_does_not_keep_the_daemon(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    daemon.control("echo", "load")
    os.kill(daemon.spare(), signal.SIGSTOP)
    started = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - started < 3


def test_a_model_that_was_removed_still_answers_before_the_daemon_stops(
    serve: Serve, models_dir: Path
) -> None:
    slow = models_dir / "slow.onnx"
    models.slow_model(slow, 1500)
    daemon = serve()
    daemon.control("slow", "load")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(daemon.infer, "slow", ONE)
        eventually(lambda: daemon.model("slow")["state"] == "busy", "the request runs")
        slow.unlink()
        daemon.refresh()
        assert daemon.stop() == 0
        assert pending.result().status == 200


def test_a_refresh_that_overlaps_the_stop_starts_nothing(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    entries = [f'[models."{number}"]\npath = "echo.onnx"\n' for number in range(3000)]
    (models_dir / "models.toml").write_text("".join(entries) + "pinned = true\n")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(daemon.request, "POST", "/v1/models/refresh")
        time.sleep(0.03)
        assert daemon.stop() == 0
        with contextlib.suppress(OSError):
            assert pending.result().status in (200, 503)


def test_a_log_that_nobody_reads_holds_nothing_up(models_dir: Path, cache_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    ready, ready_fd = os.pipe()
    command = [sys.executable, "-m", "snoozeml", "serve", "--port", "0", "--log-level", "debug"]
    process = subprocess.Popen(
        [*command, "--models-dir", str(models_dir), "--ready-fd", str(ready_fd)],
        env={**os.environ, "SNOOZE_CACHE_DIR": str(cache_dir)},
        stderr=subprocess.PIPE,  # and never read
        pass_fds=[ready_fd],
    )
    os.close(ready_fd)
    try:
        address = os.read(ready, 4096).decode().partition('"http":"')[2].partition('"')[0]
        host, _, port = address.rpartition(":")
        for _ in range(1500):
            with socket.create_connection((host, int(port)), 5) as client:
                client.settimeout(5)
                client.sendall(request_bytes("GET", "/v1/models/unknown-" + "x" * 100))
                assert client.recv(100).startswith(b"HTTP/1.1 404")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
        os.close(ready)


def test_replicas_that_are_not_needed_after_all_leave_the_model_alive(
    serve: Serve, models_dir: Path
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve("[defaults]\nmax_batch_size = 1\nautoscale_queue_threshold = 1\n")
    with ThreadPoolExecutor(9) as pool:
        for _ in range(25):
            asked = [pool.submit(daemon.infer, "echo", ONE) for _ in range(8)]
            assert daemon.control("echo", "unload")["status"] == "unloaded"
            assert {future.result().status for future in asked} == {200}


def test_many_load_and_unload_at_once_and_everybody_is_answered(echo: Daemon) -> None:
    """Loads and unloads overtake each other in every order, with work going on."""
    stop = threading.Event()
    wrong: list[object] = []

    def ask() -> None:
        while not stop.is_set():
            reply = echo.infer("echo", ONE)
            if reply.status != 200:
                wrong.append(reply)

    def order(verb: str) -> list[int]:
        return [echo.request("POST", f"/v1/models/echo/{verb}").status for _ in range(40)]

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        orders = [pool.submit(order, verb) for verb in ("load", "unload", "load", "unload")]
        statuses = {status for future in orders for status in future.result(40)}
        stop.set()
        for future in asking:
            future.result(10)
    assert wrong == [], [entry for entry in echo.log() if entry["level"] != "info"]
    assert statuses <= {200, 503}
