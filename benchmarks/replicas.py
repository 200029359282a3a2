"""What a second replica gives to a crowd, and what it costs."""

import asyncio
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, at_most
from benchmarks.rounds import ratio
from benchmarks.stand import served
from e2e import processes
from e2e.client import infer_body, tensor
from e2e.crowd import queue_ms
from e2e.daemon import Daemon
from e2e.eventually import eventually
from models import linear_model, slow_model

_MB: Final = 10**6
_CROWD: Final = 64
_ROUNDS: Final = 5
_FEATURES: Final = 1024
_CLASSES: Final = 90 * 2**8  # times the features: 94 MB
_USE_S: Final = 10.0
"""Longer than it takes a worker to notice that it is used and to make itself at home."""

_SETTINGS: Final = """
[defaults]
idle_timeout_secs = 0
batching = "off"
threads = 1
autoscale_queue_threshold = 1
[models.one]
max_replicas = 1
[models.two]
max_replicas = 2
[models.hall]
max_batch_size = 1
max_replicas = 2
"""


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            slow_model(Path(folder, f"{name}.onnx"), 50)
        linear_model(Path(folder, "hall.onnx"), _FEATURES, _CLASSES)
        with served(Path(folder), _SETTINGS) as daemon:
            return [*_waiting(daemon), *_memory(daemon)]


def _waiting(daemon: Daemon) -> list[Figure]:
    raw: dict[str, list[float]] = {"one": [], "two": []}
    body = infer_body(tensor("x", [1, 1], [1]))
    for name in ("one", "two"):
        daemon.control(name, "load")
    for _ in range(_ROUNDS):
        for name, waited_ms in raw.items():
            waited_ms.append(median(asyncio.run(queue_ms(daemon, name, body, _CROWD))))
    share, where = ratio(raw["two"], raw["one"]), f"{_CROWD} clients, 50 ms a run"
    return [
        Figure(
            what=f"{where}, one replica, time in the queue", value=median(raw["one"]), unit="ms"
        ),
        Figure(what=f"{where}, two replicas", value=median(raw["two"]), unit="ms"),
        Figure(what=f"{where}, two / one", value=share, unit="", bound=at_most(0.67), raw=raw),
    ]


def _memory(daemon: Daemon) -> list[Figure]:
    for name in ("one", "two"):
        daemon.control(name, "unload")
    _ask(daemon)
    mapped = [_workers_bytes(daemon)]
    came_s = _grow(daemon)
    mapped.append(_workers_bytes(daemon))
    _use(daemon, _USE_S)
    used_bytes = _workers_bytes(daemon)
    where = "94 MB plan, proportional"
    return [
        Figure(what="from a crowd to a second replica", value=came_s * 1000, unit="ms"),
        Figure(what=f"{where}, one replica", value=mapped[0] / _MB, unit="MB"),
        Figure(what=f"{where}, two replicas", value=mapped[1] / _MB, unit="MB"),
        Figure(
            what=f"{where}, two / one", value=mapped[1] / mapped[0], unit="", bound=at_most(1.3)
        ),
        Figure(what=f"{where}, two that have packed", value=used_bytes / _MB, unit="MB"),
        Figure(
            what=f"{where}, two that have packed / one",
            value=used_bytes / mapped[0],
            unit="",
            bound=at_most(1.3),
        ),
    ]


def _grow(daemon: Daemon) -> float:
    """Let many wait until a second replica has come; seconds from the first of them to that."""
    with ThreadPoolExecutor(6) as pool:
        with processes.frozen(daemon.worker()):
            started = time.perf_counter()
            crowd = [pool.submit(_ask, daemon) for _ in range(6)]
            eventually(lambda: daemon.model("hall")["replicas"] == 2, "a second replica comes")
            came_s = time.perf_counter() - started
            eventually(lambda: sum(f.done() for f in crowd) == 4, "it takes what waits")
        for future in crowd:
            future.result()
    return came_s


def _use(daemon: Daemon, seconds: float) -> None:
    """Two clients, so that each replica has something to do."""
    until = time.monotonic() + seconds

    def client() -> None:
        while time.monotonic() < until:
            _ask(daemon)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(client) for _ in range(2)]:
            future.result()


def _ask(daemon: Daemon) -> None:
    row = tensor("X", [1, _FEATURES], [1] * _FEATURES)
    assert daemon.infer("hall", row, outputs=["label"]).status == 200


def _workers_bytes(daemon: Daemon) -> int:
    return sum(map(processes.proportional_bytes, daemon.workers()))
