"""Memory and CPU of a daemon that has nothing to do."""

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, at_most
from benchmarks.stand import served
from e2e import processes
from e2e.eventually import eventually
from e2e.footprint import cpu_share, cycle, is_alone
from models import identity_model

_MB: Final = 10**6
_MIB: Final = 2**20
_CYCLES: Final = 200
_IDLE_S: Final = 20


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("echo", "one", "two"):
            identity_model(Path(folder, f"{name}.onnx"))
        return [*_memory(Path(folder)), *_cpu(Path(folder))]


def _memory(models_dir: Path) -> list[Figure]:
    with served(models_dir, "[server]\nspare_linger_secs = 1\n") as daemon:
        fresh = processes.resident_bytes(daemon.pid)
        cycle(daemon, "echo")
        start = processes.resident_bytes(daemon.pid)
        for _ in range(_CYCLES):
            cycle(daemon, "echo")
        eventually(lambda: is_alone(daemon), "the spare leaves")
        end = processes.resident_bytes(daemon.pid)
        share = processes.proportional_bytes(daemon.pid)
    return [
        Figure(what="daemon, resident, before the first request", value=fresh / _MB, unit="MB"),
        Figure(
            what=f"daemon, resident, all asleep after {_CYCLES} loads",
            value=end / _MB,
            unit="MB",
            bound=at_most(45),
        ),
        Figure(what="daemon, proportional, then", value=share / _MB, unit="MB"),
        Figure(
            what=f"growth from the first to the last of {_CYCLES} load/infer/unload cycles",
            value=(end - start) / _MIB,
            unit="MiB",
            bound=at_most(2),
        ),
    ]


def _cpu(models_dir: Path) -> list[Figure]:
    with served(models_dir, "[defaults]\nidle_timeout_secs = 0\n") as daemon:
        for name in ("echo", "one", "two"):
            daemon.control(name, "load")
        tree = daemon.tree()
        memory = sum(map(processes.proportional_bytes, tree))
        eventually(lambda: cpu_share(tree, 0.5) < 0.001, "the loading is over")
        share = cpu_share(tree, _IDLE_S)
    return [
        Figure(
            what="whole tree with three tiny models loaded, proportional",
            value=memory / _MB,
            unit="MB",
        ),
        Figure(
            what=f"CPU of the whole tree over {_IDLE_S} s, three models loaded, idle",
            value=share * 100,
            unit="%",
            bound=at_most(0.1),
        ),
    ]
