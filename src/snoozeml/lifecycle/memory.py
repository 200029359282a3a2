"""Memory as the kernel counts it: of a process, of the machine, of the cgroup around us."""

import os
from pathlib import Path
from typing import Final

_CGROUP_V2: Final = Path("/sys/fs/cgroup")
_CGROUP_V1: Final = Path("/sys/fs/cgroup/memory")
_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9} | {
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


def proportional_bytes(pid: int) -> int | None:
    """Proportional set size: private memory plus this process's share of what it shares.

    This is what the machine gets back when the process ends, but for pages that stay cached. The
    rest of its family goes with it, and counts.

    Returns:
        bytes; None when the process is gone or the system (macOS) has no such figure.
    """
    own, *others = (_kib_after(f"/proc/{one}/smaps_rollup", "Pss:") for one in family(pid))
    return None if own is None else own + sum(size or 0 for size in others)


def family(pid: int) -> list[int]:
    """A process, those that its main thread has started, and so on.

    A worker has such a child where a Python model runs in a process of its own.
    """
    found = [pid]
    for parent in found:  # grows while we walk it
        for line in _lines(Path(f"/proc/{parent}/task/{parent}/children")):
            found += map(int, line.split())
    return found


def total_bytes() -> int:
    """What the machine has, or what its cgroup allows, if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, _cgroup_limit() or machine)


def available_bytes() -> int | None:
    """What can be taken now without swapping or being killed; None where unknown.

    Caches that can be dropped count as available, on the machine and in the cgroup.
    """
    left = (_kib_after("/proc/meminfo", "MemAvailable:"), _cgroup_left())
    return min((size for size in left if size is not None), default=None)


class OomWatch:
    """Tells whether the kernel has killed somebody for lack of memory since it was last asked."""

    def __init__(self) -> None:
        self._seen = _oom_kills()

    def killed(self) -> bool:
        before, self._seen = self._seen, _oom_kills()
        return before is not None and self._seen is not None and self._seen > before


def _oom_kills() -> int | None:
    """How often the kernel has killed a process of our cgroup; None: it does not say."""
    v2, v1 = _cgroup_folders()
    for file in (v2 / "memory.events", v1 / "memory.oom_control"):
        for line in _lines(file):
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
    return None


def parse_limit(limit: int | str, total: int) -> int:
    """Bytes meant by a limit: a number, a number with a unit, or a share of the total.

    Raises:
        ValueError: none of these.
    """
    text = str(limit).strip()
    if text.endswith("%"):
        return int(total * float(text[:-1]) / 100)
    number = text.rstrip("BKMGIbkmgi ")
    return int(float(number) * _UNITS[text[len(number) :].strip().upper()])


def _kib_after(file: str, label: str) -> int | None:
    for line in _lines(Path(file)):
        if line.startswith(label):
            return int(line.split()[1]) * 1024
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _number(file: Path) -> int | None:
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].isdigit() else None  # "max" is no limit


def _cgroup_folders() -> tuple[Path, Path]:
    """Where the kernel tells of our own cgroup, in version 2 and in version 1.

    In a container the folder is the root of what is mounted; under a service manager it is not.
    """
    v2, v1 = _CGROUP_V2, _CGROUP_V1
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if not controllers and (_CGROUP_V2 / path[1:]).is_dir():
            v2 = _CGROUP_V2 / path[1:]
        elif "memory" in controllers.split(",") and (_CGROUP_V1 / path[1:]).is_dir():
            v1 = _CGROUP_V1 / path[1:]
    return v2, v1


def _cgroup_limit() -> int | None:
    v2, v1 = _cgroup_folders()
    limit = _number(v2 / "memory.max")
    return limit if limit is not None else _number(v1 / "memory.limit_in_bytes")


def _cgroup_left() -> int | None:
    limit = _cgroup_limit()
    if limit is None:
        return None
    v2, v1 = _cgroup_folders()
    used = _number(v2 / "memory.current")
    if used is None:
        used = _number(v1 / "memory.usage_in_bytes") or 0
    return limit - used + _droppable_cache()


def _droppable_cache() -> int:
    for folder in _cgroup_folders():
        for line in _lines(folder / "memory.stat"):
            key, _, value = line.partition(" ")
            if key in ("inactive_file", "total_inactive_file"):
                return int(value)
    return 0
