"""Memory that is really limited, by the kernel."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")


class NotPermitted(Exception):
    """This machine lets us make no memory cgroup."""


class MemoryCgroup:
    """A cgroup of our own, below the root; made by `limited_memory`."""

    def __init__(self, folder: Path, parent: Path) -> None:
        self._folder = folder
        self._parent = parent

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Be in it for the duration of the block: processes started meanwhile stay in it."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self._parent / "cgroup.procs").write_text(str(os.getpid()))

    def oom_kills(self) -> int:
        """How many of its processes the kernel has killed to stay within the limit."""
        for name in ("memory.events", "memory.oom_control"):
            file = self._folder / name
            if file.exists():
                return int(dict(map(str.split, file.read_text().splitlines()))["oom_kill"])
        raise LookupError(f"{self._folder} does not count out-of-memory kills")


@contextmanager
def limited_memory(limit_bytes: int) -> Iterator[MemoryCgroup]:
    """A cgroup in which all processes together, their page cache included, get so much memory.

    At the end no process may be in it any more.

    Raises:
        NotPermitted: there are no memory cgroups here, or they are not for us.
    """
    root = _V1 if _V1.exists() else _V2
    folder = root / f"snooze-test-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if root == _V1 else "memory.max")
    try:
        folder.mkdir()
    except OSError as error:
        raise NotPermitted(str(error)) from error
    try:
        if not limit.exists():
            raise NotPermitted(f"{root} does not delegate memory")
        limit.write_text(str(limit_bytes))
        yield MemoryCgroup(folder, _home(root))
    finally:
        folder.rmdir()


def _home(root: Path) -> Path:
    """The cgroup that we are in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") or (root == _V2 and number == "0"):
            return root / path.lstrip("/")
    return root
