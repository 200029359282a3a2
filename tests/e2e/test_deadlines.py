"""Nobody waits longer than he said, and no work is done that nobody waits for."""

import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.client import Reply, infer_body, request_bytes, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually

ONE = tensor("x", [1, 1], [1])
LATE_S = 0.5
"""What an answer may take beyond its deadline on a busy machine; the daemon needs 10 ms."""


def _assert_deadline(reply: Reply) -> None:
    assert (reply.status, reply.json()["code"]) == (504, "deadline_exceeded")


@pytest.fixture
def echo(serve: Serve, models_dir: Path) -> Daemon:
    """A daemon whose only model, `echo`, is awake and has answered once."""
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve("[defaults]\nmax_queue = 8\n")
    assert daemon.infer("echo", ONE).status == 200
    return daemon


@pytest.mark.parametrize("by", ["member", "header"])
def test_the_deadline_comes_while_a_batch_runs(echo: Daemon, by: str) -> None:
    with processes.frozen(echo.worker()):
        started = time.monotonic()
        if by == "member":
            reply = echo.infer("echo", ONE, timeout_ms=200)
        else:
            reply = echo.infer("echo", ONE, headers={"X-Request-Timeout-Ms": "200"})
        took_s = time.monotonic() - started
    _assert_deadline(reply)
    assert 0.19 <= took_s < 0.2 + LATE_S
    assert echo.infer("echo", ONE).outputs() == {"y": [1.0]}


def test_the_shorter_of_two_deadlines_counts(echo: Daemon) -> None:
    with processes.frozen(echo.worker()):
        for member, header in ((200, 20_000), (20_000, 200)):
            started = time.monotonic()
            headers = {"X-Request-Timeout-Ms": str(header)}
            _assert_deadline(echo.infer("echo", ONE, headers=headers, timeout_ms=member))
            assert time.monotonic() - started < 0.2 + LATE_S


def test_the_default_deadline_is_a_setting(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve("[defaults]\nrequest_timeout_secs = 0.3\n")
    daemon.control("echo", "load")
    with processes.frozen(daemon.worker()):
        started = time.monotonic()
        _assert_deadline(daemon.infer("echo", ONE))
        assert 0.29 <= time.monotonic() - started < 0.3 + LATE_S


def test_the_deadline_comes_during_a_load(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    models.identity_model(models_dir / "first.onnx")
    daemon = serve()
    daemon.control("first", "load")  # now the spare is there, and can be held
    with processes.frozen(daemon.spare()):
        started = time.monotonic()
        reply = daemon.infer("echo", ONE, timeout_ms=300)
        took_s = time.monotonic() - started
        _assert_deadline(reply)
        assert 0.29 <= took_s < 0.3 + LATE_S
    assert daemon.infer("echo", ONE).outputs() == {"y": [1.0]}
    assert daemon.model("echo")["loads"] == 1


def test_a_request_that_is_past_its_deadline_is_not_run(serve: Serve, models_dir: Path) -> None:
    """Three requests wait behind one that runs, until nobody wants their answers any more."""
    models.slow_model(models_dir / "slow.onnx", 700)
    daemon = serve('[models.slow]\nbatching = "off"\n')
    daemon.control("slow", "load")
    before = daemon.metrics()["snoozeml_batches_dispatched_total"]
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(daemon.infer, "slow", ONE)
        eventually(lambda: daemon.model("slow")["state"] == "busy", "the first one runs")
        waiting = [pool.submit(daemon.infer, "slow", ONE, timeout_ms=150) for _ in range(3)]
        for late in waiting:
            _assert_deadline(late.result())
        assert not running.done()
        assert running.result().status == 200
    assert daemon.infer("slow", ONE).status == 200
    assert daemon.metrics()["snoozeml_batches_dispatched_total"] - before == 2


def test_timeouts_that_make_no_sense_are_refused(echo: Daemon) -> None:
    for header in ("soon", "-5", "0", "1.5e400", "nan"):
        reply = echo.infer("echo", ONE, headers={"X-Request-Timeout-Ms": header})
        assert (reply.status, reply.json()["code"]) == (400, "invalid_input"), header
        assert "X-Request-Timeout-Ms" in reply.json()["error"]


def test_a_client_that_leaves_is_forgotten(echo: Daemon) -> None:
    batches = echo.metrics()["snoozeml_batches_dispatched_total"]
    with processes.frozen(echo.worker()):
        body = infer_body(ONE)
        for _ in range(5):
            with echo.connect() as connection:
                connection.send(request_bytes("POST", "/v1/models/echo/infer", body))
                eventually(lambda: echo.model("echo")["state"] == "busy", "the request is there")
        eventually(lambda: echo.model("echo")["state"] == "ready", "nothing is in flight")
        assert echo.model("echo")["queue_depth"] == 0
    assert echo.infer("echo", ONE).outputs() == {"y": [1.0]}
    grown = echo.metrics()["snoozeml_batches_dispatched_total"] - batches
    assert grown == 1, "what nobody waits for was run"


def test_a_full_queue_refuses_and_says_when_to_come_back(echo: Daemon) -> None:
    """`max_queue` is 8: so many wait beside those that the worker holds; the next is refused."""
    with ThreadPoolExecutor(200) as pool:
        with processes.frozen(echo.worker()):
            sent: list[Future[Reply]] = []
            refused: list[Future[Reply]] = []
            while not refused and len(sent) < 200:
                sent.append(pool.submit(echo.infer, "echo", ONE))
                refused = [future for future in sent if future.done()]
                time.sleep(0.01)  # so that few more are sent than are needed
            assert refused, "200 requests wait, and none was refused"
            reply = refused[0].result()
            assert (reply.status, reply.json()["code"]) == (503, "overloaded")
            assert re.fullmatch(r"[1-9]\d*", reply.headers["retry-after"])
            assert "8" in reply.json()["error"]
        statuses = [future.result().status for future in sent]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= 8
    assert echo.infer("echo", ONE).status == 200
