"""Workers that crash, hang and turn deaf: who notices, who is blamed, and who gets his answer."""

import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL, SIGSEGV, Signals
from typing import Final

import pytest

import models
from e2e import processes
from e2e.client import Reply, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from python_models import python_model

ONE: Final = tensor("x", [1, 1], [1])
STOP_LIMIT_S: Final = 2.0
"""How long a worker that was asked to leave may take."""


@pytest.fixture
def echo(models_dir: Path) -> Path:
    return models.identity_model(models_dir / "echo.onnx")


@pytest.fixture
def burn(models_dir: Path) -> Path:
    return models.burning_model(models_dir / "burn.onnx")


def burning(daemon: Daemon, ms: int) -> Reply:
    """Keep a worker busy for that long; also the request's content."""
    return daemon.infer("burn", tensor("ms", [1, 1], [ms]))


def preparing(daemon: Daemon) -> list[int]:
    return [pid for pid in daemon.tree() if "snoozeml.prepare" in processes.command_line(pid)]


def assert_refused(reply: Reply, code: str) -> None:
    assert (reply.status, reply.json()["code"]) == (503, code), reply


def new_worker(daemon: Daemon, *before: int) -> int:
    """The worker that serves now and is none of those before; waits until it is at work."""

    def probe() -> list[int]:
        found = [pid for pid in daemon.workers() if pid not in before]
        # In this order: who was there before the model is busy is not loading any more.
        return found if daemon.model("burn")["state"] == "busy" else []

    (worker,) = eventually(probe, "a worker has the request")
    return worker


# Deaths


@pytest.mark.parametrize("signal", [SIGKILL, SIGSEGV])
def test_the_death_of_an_idle_worker_is_noticed_and_shown(
    serve: Serve, echo: Path, signal: Signals
) -> None:
    daemon = serve()
    daemon.control("echo", "load")
    os.kill(daemon.worker(), signal)
    eventually(lambda: daemon.model("echo")["state"] == "idle", "the death is noticed")
    model = daemon.model("echo")
    assert signal.name in model["last_error"]
    assert (model["replicas"], model["memory_bytes"]) == (0, 0)
    assert daemon.infer("echo", ONE).status == 200
    assert daemon.model("echo")["last_error"] is None


def test_a_pinned_model_comes_back_by_itself(serve: Serve, echo: Path) -> None:
    daemon = serve()
    daemon.control("echo", "pin")
    worker = daemon.worker()
    os.kill(worker, SIGKILL)
    eventually(lambda: daemon.model("echo")["loads"] == 2, "it is loaded again")
    assert daemon.model("echo")["state"] == "ready"
    assert daemon.worker() != worker


def test_the_log_says_how_a_worker_died_and_what_it_said_last(serve: Serve, echo: Path) -> None:
    daemon = serve(PYTHONFAULTHANDLER="1")  # the interpreter says something before it dies
    daemon.control("echo", "load")
    worker = daemon.worker()
    os.kill(worker, SIGSEGV)
    eventually(lambda: daemon.model("echo")["state"] == "idle", "the death is noticed")
    (record,) = (line for line in daemon.log() if line["event"] == "worker died")
    assert record == record | {"model": "echo", "pid": worker, "level": "error"}
    assert "SIGSEGV" in record["why"]
    assert any("Segmentation fault" in line for line in record["last_output"])


def test_whoever_is_killed_from_outside_is_not_to_blame(serve: Serve, burn: Path) -> None:
    """The same request is there each time, and answered in the end."""
    daemon = serve()
    killed: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(burning, daemon, 500)
        for _ in range(4):
            killed.append(new_worker(daemon, *killed))
            os.kill(killed[-1], SIGKILL)
        assert answer.result().outputs() == {"y": [500.0]}
    assert daemon.model("burn")["loads"] == 5


def test_those_that_were_there_when_a_worker_crashed_are_answered(serve: Serve, echo: Path) -> None:
    daemon = serve()
    daemon.control("echo", "load")
    worker = daemon.worker()
    with ThreadPoolExecutor(8) as pool:
        with processes.frozen(worker):
            sent = [pool.submit(daemon.infer, "echo", tensor("x", [1, 1], [n])) for n in range(8)]
            eventually(lambda: daemon.model("echo")["state"] == "busy", "the requests are there")
            time.sleep(0.1)
            os.kill(worker, SIGSEGV)  # it dies of it as soon as it goes on
        replies = [future.result() for future in sent]
    assert [reply.outputs() for reply in replies] == [{"y": [float(n)]} for n in range(8)]
    assert daemon.model("echo")["loads"] == 2


def test_a_prepare_process_that_is_killed_costs_no_answer(models_dir: Path, tmp_path: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    with Daemon(models_dir, tmp_path / "cache") as daemon, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(daemon.infer, "echo", ONE)
        (prepare,) = eventually(lambda: preparing(daemon), "the model is being prepared")
        os.kill(prepare, SIGKILL)
        assert answer.result().outputs() == {"y": [1.0]}
        assert daemon.stop() == 0


def test_a_prepare_process_that_hangs_is_ended_and_holds_up_no_other(
    serve: Serve, models_dir: Path
) -> None:
    limit_s = 2.0
    for name, seed in (("known", 100), ("new", 101)):
        models.linear_model(models_dir / f"{name}.onnx", seed=seed)
    daemon = serve(f"[defaults]\nload_timeout_secs = {limit_s}\n")

    def describes(name: str) -> bool:
        return daemon.request("GET", f"/v2/models/{name}").status == 200

    eventually(lambda: describes("known"), "it has been prepared")
    for target in ("/v2/models/new", "/v1/models/new/load"):
        method = "GET" if target.startswith("/v2") else "POST"
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(daemon.request, method, target)
            (prepare,) = eventually(lambda: preparing(daemon), "the model is being prepared")
            with processes.frozen(prepare):
                started = time.monotonic()
                assert describes("known")
                assert time.monotonic() - started < limit_s / 2
                assert held.result(10).status == 503
            assert "load_timeout_secs" in held.result().body.decode()
        assert not processes.alive(prepare)
    eventually(lambda: describes("new"), "another one has prepared it")


def limit_cpu(pid: int, seconds: int) -> None:
    """Let a process, and each that it starts, die of SIGXCPU after so much CPU time."""
    _, most = resource.prlimit(pid, resource.RLIMIT_CPU)
    resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, most))


def test_a_request_that_crashes_workers_is_found_out_and_kept_out(serve: Serve, burn: Path) -> None:
    """Its content kills: the kernel ends workers that burn more than a second."""
    daemon = serve('[models.burn]\nbatching = "off"\n')
    assert burning(daemon, 1).status == 200
    limit_cpu(daemon.spare(), 1)
    daemon.control("burn", "unload")  # workers take the limit from the spare they come from
    with ThreadPoolExecutor(4) as pool:
        poison = pool.submit(burning, daemon, 20_000)
        first = new_worker(daemon)
        innocent = [pool.submit(burning, daemon, ms) for ms in (1, 2, 3)]  # behind it, and with it
        assert_refused(poison.result(), "worker_crashed")
        assert "SIGXCPU" in poison.result().json()["error"]
        assert [reply.result().outputs()["y"] for reply in innocent] == [[1.0], [2.0], [3.0]]
    assert not processes.alive(first)

    loads = daemon.model("burn")["loads"]
    assert loads == 4, "before; two for the poison; one for the others"
    started = time.monotonic()
    assert_refused(burning(daemon, 20_000), "worker_crashed")
    assert time.monotonic() - started < 0.5, "it is known"
    assert burning(daemon, 4).outputs() == {"y": [4.0]}
    assert daemon.model("burn")["loads"] == loads


def test_a_model_that_always_crashes_backs_off_and_is_tried_again(serve: Serve, burn: Path) -> None:
    daemon = serve()
    assert burning(daemon, 1).status == 200
    limit_cpu(daemon.spare(), 1)
    daemon.control("burn", "unload")
    assert_refused(burning(daemon, 20_001), "worker_crashed")  # two deaths
    third = burning(daemon, 20_002)
    assert third.status == 503
    loads = daemon.model("burn")["loads"]

    refused = burning(daemon, 5)

    assert_refused(refused, "worker_crashed")
    assert int(refused.headers["retry-after"]) >= 1
    assert "SIGXCPU" in refused.json()["error"]
    assert daemon.model("burn")["loads"] == loads, "nothing was tried"
    eventually(lambda: burning(daemon, 5).status == 200, "after the backoff it is tried again")


def test_failures_that_lie_apart_do_not_add_up(serve: Serve, models_dir: Path) -> None:
    """A load that fails is a first failure again once the model has served in between."""
    path = models_dir / "fickle.onnx"
    path.write_bytes(b"this is not a model")
    daemon = serve()
    for _ in range(2):
        path.write_bytes(b"this is not a model")
        daemon.refresh()
        assert_refused(daemon.infer("fickle", ONE), "model_failed")
        assert daemon.infer("fickle", ONE).headers["retry-after"] == "1"
        models.identity_model(path)
        daemon.refresh()
        eventually(lambda: daemon.infer("fickle", ONE).status == 200, "the mended model answers")


# Hangs


def test_a_worker_that_hangs_is_ended_and_what_it_held_is_answered(
    serve: Serve, echo: Path
) -> None:
    hangs_s = 1.0
    daemon = serve(f"[defaults]\nexec_timeout_secs = {hangs_s}\n")
    daemon.control("echo", "load")
    worker = daemon.worker()
    with processes.frozen(worker), ThreadPoolExecutor(4) as pool:
        started = time.monotonic()
        sent = [pool.submit(daemon.infer, "echo", tensor("x", [1, 1], [n])) for n in range(4)]
        assert [future.result().outputs() for future in sent] == [{"y": [n]} for n in range(4)]
        assert hangs_s <= time.monotonic() - started < 2 * hangs_s + 1
    assert not processes.alive(worker)
    assert daemon.model("echo")["loads"] == 2


def test_a_request_that_makes_workers_hang_is_refused_the_second_time(
    serve: Serve, burn: Path
) -> None:
    daemon = serve("[defaults]\nexec_timeout_secs = 0.5\n")
    reply = burning(daemon, 20_000)
    assert_refused(reply, "worker_crashed")
    assert "exec_timeout_secs" in reply.json()["error"]
    assert burning(daemon, 1).status == 200
    assert daemon.model("burn")["loads"] == 3


def test_a_load_that_hangs_keeps_no_other_from_loading(serve: Serve, echo: Path) -> None:
    python_model(echo.with_name("hangs"), load="import time; time.sleep(1000)")
    daemon = serve("[server]\nmax_concurrent_loads = 1\n")
    assert daemon.request("POST", "/v1/models/hangs/load?wait=false").status in (200, 202)
    eventually(lambda: daemon.workers(), "it hangs")
    started = time.monotonic()
    assert daemon.infer("echo", ONE).status == 200
    assert time.monotonic() - started < 10


def test_much_work_is_no_hang(serve: Serve, burn: Path) -> None:
    """All of it takes longer than the limit, but answers keep coming."""
    daemon = serve('[defaults]\nexec_timeout_secs = 3\nbatching = "off"\nmax_replicas = 1\n')
    daemon.control("burn", "load")
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: burning(daemon, 300), range(12)))
    assert time.monotonic() - started > 3.2, "the limit was never in reach"
    assert [reply.status for reply in replies] == [200] * 12
    assert daemon.model("burn")["loads"] == 1


def test_a_deaf_worker_is_ended_when_it_should_leave(serve: Serve, echo: Path) -> None:
    daemon = serve()
    daemon.control("echo", "load")
    worker = daemon.worker()
    with processes.frozen(worker):
        started = time.monotonic()
        answer = daemon.control("echo", "unload")
        assert time.monotonic() - started < STOP_LIMIT_S + 2
    assert answer["freed_bytes"] > 0
    assert not processes.alive(worker)
    assert daemon.infer("echo", ONE).status == 200


# Thrashing


def test_models_that_push_each_other_out_are_told_of_once(serve: Serve, echo: Path) -> None:
    models.identity_model(echo.with_name("other.onnx"))
    daemon = serve("[defaults]\nmax_loaded_models = 1\nmin_residency_secs = 0\n")
    for _ in range(10):
        for model_id in ("echo", "other"):
            assert daemon.infer(model_id, ONE).status == 200
    assert daemon.metrics()["snoozeml_deallocation_thrashing_total"] > 0
    warnings = [line["event"] for line in daemon.log() if line["level"] == "warning"]
    assert len(warnings) == 1
    assert "max_loaded_models" in warnings[0]
