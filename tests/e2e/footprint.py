"""What a daemon uses, measured alike in tests and benchmarks."""

import time
from collections.abc import Sequence

from e2e import processes
from e2e.client import tensor
from e2e.daemon import Daemon


def cycle(daemon: Daemon, model_id: str) -> None:
    """Load, use and unload a model made by `models.identity_model`."""
    assert daemon.infer(model_id, tensor("x", [1, 1], [1])).status == 200
    daemon.control(model_id, "unload")


def is_alone(daemon: Daemon) -> bool:
    """Whether the daemon has no other process left: no worker, no spare."""
    return daemon.tree() == [daemon.pid]


def cpu_share(pids: Sequence[int], over_s: float) -> float:
    """CPU time that processes use while time passes, as a share of one core.

    Raises:
        FileNotFoundError: one of them ended meanwhile, so its use cannot be told.
    """
    before = sum(map(processes.cpu_ns, pids))
    started = time.monotonic()
    time.sleep(over_s)  # the measurement itself
    used_s = (sum(map(processes.cpu_ns, pids)) - before) / 1e9
    return used_s / (time.monotonic() - started)
