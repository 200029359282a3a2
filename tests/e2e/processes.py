"""What the kernel says about a tree of processes, read from /proc."""

import os
import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PROC = Path("/proc")
_KIB = 1024


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie, which only waits to be reaped, does not."""
    try:
        return _stat(pid)[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def tree(root: int) -> list[int]:
    """`root` and everything that descends from it, zombies left out, parents before children."""
    children = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                state, parent = _stat(int(entry.name))[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                children[int(parent)].append(int(entry.name))
    found = [root] if alive(root) else []
    for pid in found:  # grows while we walk it: breadth first
        found += sorted(children[pid])
    return found


def parent(pid: int) -> int | None:
    """The process's parent; None when it is gone."""
    try:
        return int(_stat(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def resident_bytes(pid: int) -> int:
    """Resident set size: every page that is mapped and in memory, shared ones included."""
    return _kilobytes(_PROC / str(pid) / "status", "VmRSS")


def proportional_bytes(pid: int) -> int:
    """Proportional set size: a page shared by n processes counts as 1/n of it."""
    return _kilobytes(_PROC / str(pid) / "smaps_rollup", "Pss")


def private_bytes(pid: int) -> int:
    """What a process has written to and shares with nobody."""
    return _kilobytes(_PROC / str(pid) / "smaps_rollup", "Private_Dirty")


def _kilobytes(path: Path, field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB$", path.read_text(), re.MULTILINE)
    if match is None:
        raise LookupError(f"{path} has no {field}")
    return int(match[1]) * _KIB


def cpu_ns(pid: int) -> int:
    """CPU time of the threads that live now, in nanoseconds.

    The clock ticks of /proc/PID/stat are 10 ms, too coarse for a process that hardly runs.
    """
    threads = (_PROC / str(pid) / "task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def mapped_files(pid: int) -> set[str]:
    """Paths of the files in the process's memory map: above all its shared libraries."""
    return {path for path, _ in _mappings(pid)}


def mapped_parts(pid: int, name: str) -> set[int]:
    """Offsets of the parts that the process has mapped of a file with this name, wherever it is."""
    return {offset for path, offset in _mappings(pid) if Path(path).name == name}


def _mappings(pid: int) -> set[tuple[str, int]]:
    lines = (_PROC / str(pid) / "maps").read_text().splitlines()
    with_path = (f for line in lines if len(f := line.split(maxsplit=5)) == 6)
    return {(fields[5], int(fields[2], 16)) for fields in with_path}


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has a descriptor of this file."""
    with suppress(FileNotFoundError):  # of descriptors that are closed meanwhile
        return any(fd.readlink() == path for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False


def command_line(pid: int) -> list[str]:
    """What it was started with; nothing when it is gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_text().rstrip("\0").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Stop processes in the middle of whatever they do, and let them go on afterwards.

    A frozen worker is the slowest model there is: it holds its requests for as long as the test
    wants, on any machine.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)
