"""A thousand small models, for tests and benchmarks alike."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import models
from e2e import processes
from e2e.client import tensor
from e2e.daemon import Daemon

REGISTERED: Final = 1000
USED: Final = 50
PLACES: Final = 20
SETTINGS: Final = f"""
[server]
spare_linger_secs = 1
max_concurrent_loads = 2
[defaults]
max_loaded_models = {PLACES}
min_residency_secs = 0
"""

_LOOKS: Final = 9


def register(folder: Path) -> None:
    """Write all models; they are alike, but each is a file of its own."""
    one = models.identity_model(folder / "model-000.onnx").read_bytes()
    for number in range(1, REGISTERED):
        (folder / f"model-{number:03}.onnx").write_bytes(one)


def use_some(daemon: Daemon) -> None:
    """Ask a few in turn, more than there are places; each is prepared first, two at a time."""

    def use(number: int) -> None:
        reply = daemon.infer(f"model-{number:03}", tensor("x", [1, 1], [number]))
        assert reply.outputs() == {"y": [float(number)]}

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(use, range(0, REGISTERED, REGISTERED // USED)))


def listing_s(daemon: Daemon) -> list[float]:
    """How long the list of all models takes, several times over."""
    took_s = []
    with daemon.connect() as connection:
        for _ in range(_LOOKS):
            started = time.monotonic()
            listed = connection.request("GET", "/v1/models").json()
            took_s.append(time.monotonic() - started)
            assert len(listed) == REGISTERED
    return took_s


def scrape_s(daemon: Daemon) -> list[float]:
    """How long the daemon works on the metrics of all models, several times over."""
    took_s = []
    with daemon.connect() as connection:
        for _ in range(_LOOKS):
            before_ns = processes.cpu_ns(daemon.pid)
            text = connection.request("GET", "/metrics").body
            took_s.append((processes.cpu_ns(daemon.pid) - before_ns) / 1e9)
            assert text.count(b"snoozeml_model_replicas{") == REGISTERED
    return took_s


def unload_all(daemon: Daemon) -> None:
    for model in daemon.request("GET", "/v1/models").json():
        if model["state"] != "idle":
            daemon.control(model["id"], "unload")
