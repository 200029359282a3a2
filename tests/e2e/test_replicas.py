"""Replicas: they come when many wait, share the work and the weights, and leave when not needed."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from statistics import median
from typing import Any, Final

import pytest

import models
from e2e import processes
from e2e.client import Reply, infer_body, tensor
from e2e.conftest import Serve
from e2e.crowd import queue_ms
from e2e.daemon import Daemon, path
from e2e.eventually import eventually

ONE: Final = tensor("x", [1, 1], [1])
CROWD: Final = 64
TURNS: Final = 3
RUN_S: Final = 0.050
PULSE_S: Final = 0.004
FEATURES: Final = 1024

EAGER: Final = "max_batch_size = 1\nautoscale_queue_threshold = 1\nmax_replicas = 2\n"
"""A worker holds two requests, and more than one that waits is too many."""


@pytest.fixture
def echo(models_dir: Path) -> Path:
    return models.identity_model(models_dir / "echo.onnx")


def ask(daemon: Daemon, number: int, **more: Any) -> Reply:
    return daemon.infer("echo", tensor("x", [1, 1], [number]), **more)


@contextmanager
def crowded(daemon: Daemon) -> Iterator[list[Future[Reply]]]:
    """Six requests for a worker that is frozen and holds two of them; yields with two replicas."""
    daemon.control("echo", "load")
    with ThreadPoolExecutor(6) as pool, processes.frozen(daemon.worker()):
        sent = [pool.submit(ask, daemon, number) for number in range(6)]
        eventually(lambda: daemon.model("echo")["replicas"] == 2, "a second replica comes")
        yield sent


def replicas(daemon: Daemon) -> int:
    count: int = daemon.model("echo")["replicas"]
    return count


# Coming


def test_a_new_replica_takes_what_waits_at_once(serve: Serve, echo: Path) -> None:
    """It answers whatever the first one does not hold, while that one stands still."""
    daemon = serve(f"[defaults]\n{EAGER}")
    with crowded(daemon) as sent:
        eventually(lambda: sum(future.done() for future in sent) == 4, "four are answered")
    assert [future.result().outputs() for future in sent] == [{"y": [float(n)]} for n in range(6)]
    assert daemon.model("echo")["loads"] == 1, "the model was awake already"


def test_there_are_never_more_replicas_than_allowed(serve: Serve, echo: Path) -> None:
    daemon = serve(f"[defaults]\n{EAGER}".replace("replicas = 2", "replicas = 3"))
    daemon.control("echo", "load")
    with ThreadPoolExecutor(32) as pool:
        with processes.frozen(daemon.worker()):
            sent = [pool.submit(ask, daemon, n) for n in range(4)]
            eventually(lambda: replicas(daemon) == 2, "a second replica comes")
            with processes.frozen(*daemon.workers()):
                sent += [pool.submit(ask, daemon, n) for n in range(4, 12)]
                eventually(lambda: replicas(daemon) == 3, "a third replica comes")
                with processes.frozen(*daemon.workers()):
                    sent += [pool.submit(ask, daemon, n) for n in range(12, 32)]
                    eventually(lambda: daemon.model("echo")["queue_depth"] > 1, "many wait")
                    time.sleep(0.5)  # in which nothing may come
                    assert len(daemon.workers()) == 3
        answers = [future.result().outputs() for future in sent]
    assert answers == [{"y": [float(n)]} for n in range(32)]


@pytest.mark.parametrize(
    ("strategy", "is_shared"), [("least_queue", False), ("round_robin", True), ("random", True)]
)
def test_the_strategy_says_who_gets_the_next_request(
    serve: Serve, echo: Path, strategy: str, is_shared: bool
) -> None:
    """One after the other, requests all go to the oldest replica, or by turns, or by chance."""
    daemon = serve(f'[defaults]\n{EAGER}routing_strategy = "{strategy}"\n')
    daemon.control("echo", "load")
    first = daemon.worker()
    with crowded(daemon):
        (second,) = set(daemon.workers()) - {first}
    for number in range(40):
        assert ask(daemon, number).status == 200
    eventually(lambda: daemon.model("echo")["state"] == "ready", "all is answered")
    before = [processes.cpu_ns(first), processes.cpu_ns(second)]
    for number in range(40):
        assert ask(daemon, number).status == 200
    worked = [processes.cpu_ns(pid) > was for pid, was in zip((first, second), before, strict=True)]
    assert worked == [True, is_shared]


def test_a_second_replica_shortens_the_waiting(serve: Serve, models_dir: Path) -> None:
    """By a third at least; the best of three rounds counts."""
    for model_id in ("alone", "pair"):
        models.slow_model(models_dir / f"{model_id}.onnx", 1000 * RUN_S / TURNS)
    daemon = serve(
        '[defaults]\nbatching = "off"\nthreads = 1\nautoscale_queue_threshold = 16\n'
        "[models.alone]\nmax_replicas = 1\n[models.pair]\nmax_replicas = 2\n"
    )
    shares: list[float] = []
    while not shares or (shares[-1] > 2 / 3 and len(shares) < 3):
        alone_ms = throttled_queue_ms(daemon, "alone", replicas=1)
        pair_ms = throttled_queue_ms(daemon, "pair", replicas=2)
        shares.append(pair_ms / alone_ms)
    assert min(shares) <= 2 / 3


def throttled_queue_ms(daemon: Daemon, model_id: str, *, replicas: int) -> float:
    """What a crowd waits, in the median, once there are as many replicas as there may be."""
    body = infer_body(ONE)
    asyncio.run(queue_ms(daemon, model_id, body, CROWD))
    workers = daemon.workers()
    assert len(workers) == daemon.model(model_id)["replicas"] == replicas
    with throttled(*workers):
        waited_ms = asyncio.run(queue_ms(daemon, model_id, body, CROWD))
    daemon.control(model_id, "unload")
    return median(waited_ms)


@contextmanager
def throttled(*pids: int) -> Iterator[None]:
    """Let processes run in turns, each for a third of the time.

    So a run of 50 ms takes 17 ms of a core, and never at the same time as another: this measures
    how requests are spread, not how many cores this machine has, nor who else is at work on it.
    """
    over = threading.Event()

    def take_turns() -> None:
        while not over.is_set():
            for turn in range(TURNS):
                for pid in pids[turn : turn + 1]:
                    os.kill(pid, SIGCONT)
                time.sleep(PULSE_S)
                for pid in pids[turn : turn + 1]:
                    os.kill(pid, SIGSTOP)

    turns = threading.Thread(target=take_turns)
    with processes.frozen(*pids):
        turns.start()
        try:
            yield
        finally:
            over.set()
            turns.join()


# Sharing


def test_two_replicas_share_their_weights(serve: Serve, models_dir: Path) -> None:
    """A plan of 90 MB costs two replicas little more than one, mapped first and packed later."""
    models.linear_model(models_dir / "hall.onnx", FEATURES, 90 * 2**8)
    daemon = serve(f'[defaults]\n{EAGER}routing_strategy = "round_robin"\n')
    assert classify(daemon).status == 200
    one_bytes = workers_bytes(daemon)
    assert one_bytes > 90 * 2**20
    with ThreadPoolExecutor(6) as pool:
        with processes.frozen(daemon.worker()):
            sent = [pool.submit(classify, daemon) for _ in range(6)]
            eventually(
                lambda: sum(f.done() for f in sent) == 4, "a second replica comes, and works"
            )
        assert [future.result().status for future in sent] == [200] * 6
    assert len(daemon.workers()) == 2
    assert workers_bytes(daemon) < 1.3 * one_bytes
    eventually(lambda: classify(daemon).status == 200 and have_packed(daemon), "they pack")
    assert workers_bytes(daemon) < 1.3 * one_bytes


def classify(daemon: Daemon, **more: Any) -> Reply:
    """One run of the model `hall`, which reads all its weights."""
    row = tensor("X", [1, FEATURES], [1] * FEATURES)
    return daemon.infer("hall", row, outputs=["label"], **more)


def workers_bytes(daemon: Daemon) -> int:
    return sum(map(processes.proportional_bytes, daemon.workers()))


def have_packed(daemon: Daemon) -> bool:
    """Whether no worker has the first of its weights mapped the way it is."""
    maps = [processes.mapped_parts(pid, "weights") for pid in daemon.workers()]
    return all(parts and 0 not in parts for parts in maps)


# Leaving


def test_coming_and_going_all_the_time_harms_nobody(serve: Serve, echo: Path) -> None:
    """A replica comes with each burst, and is dismissed while one client asks without a pause."""
    idle_s = 0.06
    daemon = serve(f"[defaults]\n{EAGER}idle_timeout_secs = {idle_s}\n")
    seen: set[int] = set()
    with ThreadPoolExecutor(16) as pool, daemon.connect() as connection:
        for _ in range(50):
            replies = list(pool.map(lambda number: ask(daemon, number), range(16)))
            seen.update(daemon.workers())
            assert [reply.outputs() for reply in replies] == [{"y": [float(n)]} for n in range(16)]
            burst = time.monotonic()
            while time.monotonic() < burst + idle_s:
                reply = connection.request("POST", path("echo", "infer"), infer_body(ONE))
                assert reply.outputs() == {"y": [1.0]}
    assert len(seen) > 10, "hardly any replica has come"
    assert [line for line in daemon.log() if line["level"] == "error"] == []


def test_they_leave_one_by_one_when_nobody_needs_them(serve: Serve, echo: Path) -> None:
    """Two replicas: one leaves after half of the idle timeout, the last after all of it."""
    idle_s = 3.0
    daemon = serve(f"[defaults]\n{EAGER}idle_timeout_secs = {idle_s}\n")
    with crowded(daemon) as sent:
        pass
    assert [future.result().status for future in sent] == [200] * 6
    first, answered = daemon.workers(), time.monotonic()
    eventually(lambda: len(daemon.workers()) < 2, "one leaves")
    left_s = time.monotonic() - answered
    eventually(lambda: daemon.workers() == [], "the last one leaves")
    slept_s = time.monotonic() - answered

    assert len(first) == 2
    assert idle_s / 2 - 0.3 < left_s < idle_s / 2 + 0.6
    assert idle_s - 0.1 < slept_s < idle_s + 0.6
    assert daemon.model("echo")["state"] == "idle"


def test_one_that_is_too_many_leaves_under_traffic_and_loses_nothing(
    serve: Serve, echo: Path
) -> None:
    daemon = serve(f'[defaults]\n{EAGER}idle_timeout_secs = 2\nrouting_strategy = "round_robin"\n')
    with crowded(daemon):
        both = set(daemon.workers())
    asked = 0
    deadline = time.monotonic() + 10
    with daemon.connect() as connection:
        while replicas(daemon) == 2:
            for _ in range(50):
                reply = connection.request("POST", path("echo", "infer"), infer_body(ONE))
                assert reply.status == 200, reply
                asked += 1
            assert time.monotonic() < deadline, "one client needs one replica"
    assert asked > 100
    assert ask(daemon, 1).status == 200
    assert set(daemon.workers()) < both, "the other one is who it was"


def test_a_replica_for_which_there_is_no_room_keeps_nobody_out(serve: Serve, echo: Path) -> None:
    """A busy model may want to grow for long; others must not wait for that."""
    models.linear_model(echo.with_name("hall.onnx"), FEATURES, 32 * 2**8)
    daemon = serve(f'[server]\nmax_memory = "110MiB"\n[models.hall]\n{EAGER}')
    assert classify(daemon).status == 200
    with ThreadPoolExecutor(6) as pool:
        with processes.frozen(daemon.worker()):
            sent = [pool.submit(classify, daemon) for _ in range(6)]
            eventually(lambda: daemon.model("hall")["queue_depth"] == 4, "more wait than it likes")
            assert ask(daemon, 1, timeout_ms=5000).status == 200
            assert daemon.model("hall")["replicas"] == 1
        assert [future.result().status for future in sent] == [200] * 6
