"""The end: what was accepted is answered, what is new is refused, and nobody stays behind."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.crowd import Outcomes, ask_until
from e2e.eventually import eventually

ONE = tensor("x", [1, 1], [1])
STOPS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("stop", STOPS)
def test_an_idle_daemon_stops_at_once(serve: Serve, models_dir: Path, stop: signal.Signals) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    assert daemon.infer("echo", ONE).status == 200
    assert len(daemon.tree()) >= 2
    started = time.monotonic()
    assert daemon.stop(stop) == 0
    assert time.monotonic() - started < 5


def test_idle_keep_alive_connections_do_not_hold_up_the_end(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    with daemon.connect() as connection:
        assert connection.request("GET", "/health/live").status == 200
        started = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - started < 5
        assert connection.ended()


@pytest.mark.parametrize("stop", STOPS)
def test_under_load_nothing_that_was_accepted_is_lost(
    serve: Serve, models_dir: Path, stop: signal.Signals
) -> None:
    models.recurrent_model(models_dir / "rnn.onnx", features=2)
    daemon = serve()
    daemon.control("rnn", "load")
    daemon.tree()
    outcomes = Outcomes()

    async def stop_in_the_middle() -> int:
        load = asyncio.create_task(ask_until(daemon, 64, lambda: not daemon.running, outcomes))
        await outcomes.more_answers(1000)
        daemon.send_signal(stop)
        code = await asyncio.to_thread(daemon.wait)
        await load
        return code

    assert asyncio.run(asyncio.wait_for(stop_in_the_middle(), 40)) == 0
    assert outcomes.wrong == []
    assert outcomes.lost == [], "accepted, then dropped"
    assert set(outcomes.refusals) <= {(503, "shutting_down")}
    assert outcomes.answered >= 1000


def test_while_draining_old_work_is_answered_and_new_work_refused(
    serve: Serve, models_dir: Path
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    daemon.control("echo", "load")
    with ThreadPoolExecutor(1) as pool:
        with processes.frozen(daemon.worker()):
            pending = pool.submit(daemon.infer, "echo", ONE)
            eventually(lambda: daemon.model("echo")["state"] == "busy", "the request is there")
            daemon.tree()
            daemon.send_signal(signal.SIGTERM)
            eventually(lambda: daemon.request("GET", "/health/ready").status == 503, "it drains")
            assert daemon.request("GET", "/health/ready").json() == {"status": "draining"}
            assert daemon.request("GET", "/health/live").status == 200
            refused = daemon.infer("echo", ONE)
            assert (refused.status, refused.json()["code"]) == (503, "shutting_down")
            assert refused.headers["connection"] == "close"
            assert not pending.done()
        assert pending.result().outputs() == {"y": [1.0]}
    assert daemon.wait() == 0


def test_draining_has_an_end(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve("[server]\ndrain_timeout_secs = 1\n")
    daemon.control("echo", "load")
    with ThreadPoolExecutor(1) as pool, processes.frozen(daemon.worker()):
        pending = pool.submit(daemon.infer, "echo", ONE)
        eventually(lambda: daemon.model("echo")["state"] == "busy", "the request is there")
        daemon.tree()
        started = time.monotonic()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait() == 1, "work was cut off"
        assert 0.9 <= time.monotonic() - started < 6
        reply = pending.result()
        assert (reply.status, reply.json()["code"]) == (503, "shutting_down")


def test_a_second_signal_forces(serve: Serve, models_dir: Path) -> None:
    models.slow_model(models_dir / "slow.onnx", 20_000)
    daemon = serve("[server]\ndrain_timeout_secs = 30\n")
    daemon.control("slow", "load")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(daemon.infer, "slow", ONE)
        eventually(lambda: daemon.model("slow")["state"] == "busy", "the request runs")
        daemon.tree()
        daemon.send_signal(signal.SIGTERM)
        eventually(lambda: daemon.request("GET", "/health/ready").status == 503, "it drains")
        started = time.monotonic()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait() == 1, "work was cut off"
        assert time.monotonic() - started < 3
        pending.exception(5)  # an answer or a broken connection, but an end


def test_a_daemon_that_is_killed_leaves_no_process_behind(serve: Serve, models_dir: Path) -> None:
    for name in ("one", "two"):
        models.identity_model(models_dir / f"{name}.onnx")
    daemon = serve()
    for name in ("one", "two"):
        daemon.control(name, "load")
    assert len(daemon.tree()) == 4, "daemon, spare and two workers"
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL


def test_a_daemon_whose_terminal_closes_stops_in_order(models_dir: Path, cache_dir: Path) -> None:
    ours, theirs = os.openpty()
    ready, ready_fd = os.pipe()
    command = [sys.executable, "-m", "snoozeml", "serve", "--port", "0"]
    daemon = subprocess.Popen(
        [*command, "--models-dir", str(models_dir), "--ready-fd", str(ready_fd)],
        env={**os.environ, "SNOOZE_CACHE_DIR": str(cache_dir)},
        stdin=theirs,
        pass_fds=[ready_fd],
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    os.close(ready_fd)
    with os.fdopen(ready) as pipe, daemon:
        assert pipe.readline()
        os.close(ours)
        assert daemon.wait(20) == 0


@pytest.mark.parametrize("how", ["signal", "request", "request whose client has left"])
def test_a_refresh_that_hangs_does_not_hold_up_the_end(
    serve: Serve, models_dir: Path, how: str
) -> None:
    """As with a network file system that does not answer."""
    daemon = serve("[server]\ndrain_timeout_secs = 1\n")
    entry = models_dir / ".uploads" / "upload" / ".entry"
    entry.parent.mkdir(parents=True)
    os.mkfifo(entry)
    with os.fdopen(os.open(entry, os.O_RDWR)), socket.create_connection(daemon.address) as client:
        if how == "signal":
            daemon.send_signal(signal.SIGHUP)
        else:
            client.sendall(b"POST /v1/models/refresh HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: processes.has_open(daemon.pid, entry), "the refresh hangs")
        if how == "request whose client has left":
            client.close()
        started = time.monotonic()
        assert daemon.stop() == (1 if how == "request" else 0)
    assert time.monotonic() - started < 10
    assert daemon.log()[-1]["event"].startswith("stopped")
