"""Many models and few places: who stays, who leaves, and who waits for how long."""

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

import models
from e2e import processes
from e2e.client import Reply, infer_body, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually

ONE: Final = tensor("x", [1, 1], [1])
CAPACITY: Final = 'snoozeml_model_deallocations_total{reason="capacity"}'
LATE_S: Final = 0.5
"""What an answer may take beyond its time on a busy machine."""


@pytest.fixture(autouse=True)
def echoes(models_dir: Path) -> None:
    for model_id in ("a", "b", "c"):
        models.identity_model(models_dir / f"{model_id}.onnx")


def settings(server: str = "", **defaults: float | str) -> str:
    """The text of models.toml; victims may leave at once unless `defaults` say otherwise."""
    values = {"min_residency_secs": 0, **defaults}
    lines = [f"{key} = {value}" for key, value in values.items()]
    return "\n".join(["[server]", server, "[defaults]", *lines, ""])


def ask(daemon: Daemon, *model_ids: str) -> None:
    for model_id in model_ids:
        assert daemon.infer(model_id, ONE).outputs() == {"y": [1.0]}


def loaded(daemon: Daemon) -> set[str]:
    listed = daemon.request("GET", "/v1/models").json()
    return {model["id"] for model in listed if model["state"] != "idle"}


def state(daemon: Daemon, model_id: str) -> str:
    current: str = daemon.model(model_id)["state"]
    return current


def assert_refused(reply: Reply, code: str) -> None:
    assert (reply.status, reply.json()["code"]) == (503, code), reply
    assert re.fullmatch(r"[1-9]\d*", reply.headers["retry-after"])


# Places


def test_the_model_unused_for_longest_makes_room(serve: Serve) -> None:
    daemon = serve(settings(max_loaded_models=2))
    ask(daemon, "a", "b", "a", "c")
    assert loaded(daemon) == {"a", "c"}
    assert len(daemon.workers()) == 2
    assert daemon.metrics()[CAPACITY] == 1
    ask(daemon, "b")
    assert loaded(daemon) == {"b", "c"}
    assert daemon.metrics()[CAPACITY] == 2


def test_a_pinned_model_is_never_evicted(serve: Serve) -> None:
    daemon = serve(settings(max_loaded_models=2))
    daemon.control("a", "pin")
    ask(daemon, "b", "c")
    assert loaded(daemon) == {"a", "c"}
    daemon.control("a", "unpin")
    ask(daemon, "b")
    assert loaded(daemon) == {"b", "c"}


def test_a_model_is_not_evicted_before_it_has_served_for_its_shortest_time(serve: Serve) -> None:
    young_s = 1.5
    daemon = serve(settings(max_loaded_models=1, min_residency_secs=young_s))
    asked = time.monotonic()
    ask(daemon, "a")
    answered, worker = time.monotonic(), daemon.worker()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(ask, daemon, "b")
        time.sleep(max(0.0, asked + young_s - 0.1 - time.monotonic()))
        assert processes.alive(worker)
        assert not other.done()
        other.result()
    assert young_s <= time.monotonic() - asked
    assert time.monotonic() - answered < young_s + 3 * LATE_S  # it has to be loaded, too
    assert loaded(daemon) == {"b"}


def test_a_busy_model_is_not_evicted_and_who_needs_its_place_waits(serve: Serve) -> None:
    daemon = serve(settings(max_loaded_models=1))
    daemon.control("a", "load")
    with ThreadPoolExecutor(2) as pool:
        with processes.frozen(daemon.worker()):
            busy = pool.submit(ask, daemon, "a")
            eventually(lambda: state(daemon, "a") == "busy", "the request is there")
            waiting = pool.submit(ask, daemon, "b")
            eventually(lambda: daemon.model("b")["queue_depth"] == 1, "the other one waits")
            time.sleep(0.3)  # in which nothing may happen
            assert not waiting.done()
            assert len(daemon.workers()) == 1
        busy.result()
        waiting.result()
    assert loaded(daemon) == {"b"}
    assert daemon.model("a")["loads"] == 1


def test_waiting_for_a_place_ends_at_the_deadline(serve: Serve) -> None:
    """Everybody who waits is told so, not only the first in the line; then nothing is loaded."""
    daemon = serve(settings(max_loaded_models=1))
    daemon.control("a", "load")
    with ThreadPoolExecutor(3) as pool:
        with processes.frozen(daemon.worker()):
            busy = pool.submit(ask, daemon, "a")
            eventually(lambda: state(daemon, "a") == "busy", "the request is there")
            started = time.monotonic()
            first = pool.submit(daemon.infer, "b", ONE, timeout_ms=800)
            eventually(lambda: daemon.model("b")["queue_depth"] == 1, "it is the first to wait")
            second = pool.submit(daemon.infer, "c", ONE, timeout_ms=200)
            assert_refused(second.result(), "overloaded")
            assert_refused(first.result(), "overloaded")
            took_s = time.monotonic() - started
        busy.result()
    assert 0.79 <= took_s < 0.8 + LATE_S
    eventually(lambda: loaded(daemon) == {"a"}, "nobody is loaded for a request that has gone")
    assert [daemon.model(model_id)["loads"] for model_id in ("a", "b", "c")] == [1, 0, 0]


def test_a_model_that_has_just_loaded_may_be_the_one_that_leaves(serve: Serve) -> None:
    """Nobody has asked it anything: its load, rather than an answer, is what others wait for."""
    daemon = serve(settings(max_loaded_models=1))
    daemon.control("c", "load")  # so that there is a spare to be held
    daemon.control("c", "unload")
    with ThreadPoolExecutor(2) as pool:
        with processes.frozen(daemon.spare()):
            load = pool.submit(daemon.control, "a", "load")
            eventually(lambda: state(daemon, "a") == "loading", "the load has begun")
            waiting = pool.submit(daemon.infer, "b", ONE, timeout_ms=5000)
            eventually(lambda: daemon.model("b")["queue_depth"] == 1, "the other one waits")
        load.result()
        assert waiting.result().status == 200
    assert loaded(daemon) == {"b"}


def test_unpinning_makes_room_for_who_waits(serve: Serve) -> None:
    daemon = serve(settings(max_loaded_models=1))
    daemon.control("a", "pin")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(daemon.infer, "b", ONE, timeout_ms=5000)
        eventually(lambda: daemon.model("b")["queue_depth"] == 1, "the other one waits")
        daemon.control("a", "unpin")
        assert waiting.result().status == 200
    assert loaded(daemon) == {"b"}


@pytest.mark.parametrize("limit", [1, 2])
def test_no_more_models_load_at_once_than_allowed(
    serve: Serve, models_dir: Path, limit: int
) -> None:
    """Preparing a new model is a part of loading it, and long enough to be seen."""
    for number in range(6):
        models.linear_model(models_dir / f"new-{number}.onnx", seed=number)
    daemon = serve(settings(f"max_concurrent_loads = {limit}"))
    most = 0
    with ThreadPoolExecutor(6) as pool:
        loads = [pool.submit(daemon.control, f"new-{n}", "load") for n in range(6)]
        while not all(load.done() for load in loads):
            most = max(most, len(_preparing(daemon)))
    for load in loads:
        load.result()
    assert most == limit


def _preparing(daemon: Daemon) -> list[int]:
    return [pid for pid in daemon.tree() if "snoozeml.prepare" in processes.command_line(pid)]


# Waking without waiting


def test_who_does_not_want_to_wait_is_told_when_to_come_back(serve: Serve) -> None:
    daemon = serve()
    fail_fast = {"X-Snooze-Cold": "fail-fast"}
    daemon.control("b", "load")  # so that there is a spare to be held
    with processes.frozen(daemon.spare()):
        for _ in range(2):  # it sleeps; it is loading
            started = time.monotonic()
            reply = daemon.infer("a", ONE, headers=fail_fast)
            assert time.monotonic() - started < LATE_S
            assert_refused(reply, "model_loading")
            assert "currently loading" in reply.json()["error"]
    eventually(lambda: state(daemon, "a") == "ready", "the load goes on without the client")
    assert daemon.infer("a", ONE, headers=fail_fast).status == 200
    assert daemon.model("a")["loads"] == 1


def test_what_to_do_while_cold_must_be_understood(serve: Serve) -> None:
    daemon = serve()
    assert daemon.infer("a", ONE, headers={"X-Snooze-Cold": "wait"}).status == 200
    reply = daemon.infer("a", ONE, headers={"X-Snooze-Cold": "hurry"})
    assert (reply.status, reply.json()["code"]) == (400, "invalid_input")


def test_a_load_need_not_be_waited_for(serve: Serve) -> None:
    daemon = serve()
    daemon.control("b", "load")  # so that there is a spare to be held
    with processes.frozen(daemon.spare()):
        for _ in range(2):
            answer = daemon.control("a", "load?wait=false")
            assert (answer["model_id"], answer["status"]) == ("a", "loading")
    eventually(lambda: state(daemon, "a") == "ready", "it is loaded")
    assert daemon.control("a", "load?wait=false")["status"] == "loaded"
    assert daemon.model("a")["loads"] == 1
    reply = daemon.request("POST", "/v1/models/a/load?wait=perhaps")
    assert (reply.status, reply.json()["code"]) == (400, "invalid_input")


# What cannot be promised


@pytest.fixture
def refused_start(models_dir: Path, cache_dir: Path) -> Callable[..., str]:
    """Start a daemon that must refuse; returns what it says."""

    def start(text: str, files: int | None = None) -> str:
        most = files or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        (models_dir / "models.toml").write_text(text)
        command = [sys.executable, "-m", "snoozeml", "serve", "--models-dir", str(models_dir)]
        run: subprocess.CompletedProcess[str] = subprocess.run(
            [*command, "--port", "0"],
            env={**os.environ, "SNOOZE_CACHE_DIR": str(cache_dir)},
            capture_output=True,
            text=True,
            timeout=20,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)),
        )
        assert run.returncode == 1, run
        return run.stderr

    return start


_TWO_PINNED: Final = "[models.a]\npinned = true\n[models.c]\npinned = true\n"


@pytest.mark.parametrize(
    ("table", "key", "limit"),
    [("defaults", "max_loaded_models", "1"), ("server", "max_memory", '"40MiB"')],
)
def test_pinned_models_that_do_not_fit_together_are_refused_at_the_start(
    refused_start: Callable[..., str], table: str, key: str, limit: str
) -> None:
    message = refused_start(f"[{table}]\n{key} = {limit}\n{_TWO_PINNED}")
    assert "a, c" in message
    assert key in message
    assert "Traceback" not in message


def test_pinned_models_that_fit_are_all_loaded(serve: Serve) -> None:
    daemon = serve(f"[defaults]\nmax_loaded_models = 2\n{_TWO_PINNED}")
    eventually(lambda: [state(daemon, m) for m in "ac"] == ["ready"] * 2, "both are ready")
    assert_refused(daemon.infer("b", ONE, timeout_ms=300), "overloaded")


def test_a_refresh_that_pins_too_many_changes_nothing(serve: Serve, models_dir: Path) -> None:
    limit = "[defaults]\nmax_loaded_models = 1\n"
    daemon = serve(limit)
    (models_dir / "models.toml").write_text(limit + _TWO_PINNED)
    reply = daemon.request("POST", "/v1/models/refresh")
    assert (reply.status, reply.json()["code"]) == (400, "invalid_input")
    assert "a, c" in reply.json()["error"]
    ask(daemon, "b")


# File descriptors


def test_a_load_without_file_descriptors_is_refused_with_that_reason(serve: Serve) -> None:
    daemon = serve()
    with daemon.connect() as connection:
        assert connection.request("GET", "/health/live").status == 200
        taken = max(int(fd.name) for fd in Path(f"/proc/{daemon.pid}/fd").iterdir()) + 1
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (taken, hard))
        reply = connection.request("POST", "/v1/models/a/infer", infer_body(ONE))
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
    assert_refused(reply, "overloaded")
    assert f"all {taken} file descriptors of the daemon are taken" in reply.json()["error"]
    assert not [line for line in daemon.log() if "traceback" in line]
    eventually(lambda: daemon.infer("a", ONE).status == 200, "it is tried again")


def test_a_limit_of_file_descriptors_that_nothing_can_work_with_stops_the_start(
    refused_start: Callable[..., str],
) -> None:
    message = refused_start("", files=24)
    assert "the limit of 24 file descriptors is too low" in message
    assert "Traceback" not in message
