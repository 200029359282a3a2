"""How much processor this daemon may use: what the machine has is not what a container gets."""

import math
import os
from pathlib import Path

from snoozeml.core.plan import Plan

# Handing work to another thread and waiting for it costs tens of microseconds. A model whose row
# takes less than this loses more by sharing it than it gains, and takes a core from its neighbours.
_WORTH_SHARING_S = 0.0002

_CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def _cores_by_affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota_cores(cpu_max: str) -> float | None:
    """Read cgroup v2's `cpu.max`: "150000 100000" (microseconds, per period) or "max 100000"."""
    quota, period = cpu_max.split()
    return None if quota == "max" else int(quota) / int(period)


def _cores_by_cgroup() -> float | None:
    try:
        return quota_cores(_CGROUP_V2.read_text(encoding="ascii"))
    except OSError:
        pass
    try:
        quota = int((_CGROUP_V1 / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = int((_CGROUP_V1 / "cpu.cfs_period_us").read_text(encoding="ascii"))
    except OSError:
        return None
    return None if quota < 0 else quota / period


def usable_cores() -> int:
    """Cores that a model may keep busy: those of the affinity mask, or less if a quota says so."""
    quota = _cores_by_cgroup()
    cores = _cores_by_affinity()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def engine_threads(asked: int, plan: Plan, cores: int) -> int:
    """Threads for one worker's engine.

    Args:
        asked: what the configuration says; 0 leaves it to us.
        cores: how many may be kept busy.
    """
    if plan.one_thread:
        return 1
    if asked:
        return asked
    small = plan.row_s is not None and plan.row_s < _WORTH_SHARING_S
    return 1 if small else cores
