"""The processes that a model's code has started, which go when the worker goes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PATIENCE_S: Final = 0.5  # until the kernel has taken them back, and their memory
_LOOK_AGAIN_S: Final = 0.002

_expected: Final = threading.Event()
_ending: Final = threading.Event()


class _Other(NamedTuple):
    pid: int
    parent: int
    group: int


def expect() -> None:
    """Say that there may be some, since this process runs a model's own code."""
    _expected.set()


def are_ending() -> bool:
    """Whether it is by our own hand that they end now."""
    return _ending.is_set()


def end_relatives() -> None:
    """Kill what descends from this process, and what is in its group, if it leads that.

    Returns when they are gone, at the latest after half a second. Those that have left both, as
    daemons do, are not found; nor is any where there is no /proc.
    """
    if not _expected.is_set():
        return
    _ending.set()
    ends_at = time.monotonic() + _PATIENCE_S
    while (found := _relatives()) and time.monotonic() < ends_at:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_AGAIN_S)


def _relatives() -> set[int]:
    own, others = os.getpid(), list(_others())
    group = own if os.getpgrp() == own else None
    found = [own, *(other.pid for other in others if other.group == group)]
    for pid in found:  # grows while we walk it
        found += [other.pid for other in others if other.parent == pid and other.pid not in found]
    return {*found} - {own}


def _others() -> Iterator[_Other]:
    """All processes of the machine that have not ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone
            stat = (folder / "stat").read_bytes()
            state, parent, group = stat.rpartition(b")")[2].split(maxsplit=3)[:3]
            if state not in b"ZX":
                yield _Other(int(folder.name), int(parent), int(group))
