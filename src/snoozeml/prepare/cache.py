"""Plans on disk, named after what they were made from.

Many processes may use one cache directory at once. A plan appears complete, by a rename, or not
at all. A plan that another process has mapped may vanish from the directory: the mapping stays, and
who needs the plan once more prepares it again.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Final

import msgspec

from snoozeml.core.disk import fsync
from snoozeml.core.plan import DRAFT_PREFIX, INDEX_FOLDER, PLAN_FILE, PLANS_FOLDER, Plan

_JUST_USED_S: Final = 60.0
"""Plans used this recently stay: a daemon may know of them and not have mapped them yet."""

_INDEX_LIFE_S: Final = 90 * 86400.0
"""An index entry this old is dropped; asking for its model again finds the plan by its content."""


class _StoredPlan(msgspec.Struct, frozen=True):
    """The contents of `plan.json`.

    Attributes:
        plan: its graphs are relative to the plan's folder, its `weights_folder` to the model's.
        files: digest of each file of the plan, by name.
    """

    plan: Plan
    files: dict[str, str]


class PlanCache:
    """The plans in one cache directory.

    Args:
        cache_dir: absolute; made when the first plan is written.
        limit_bytes: what all plans together may take.
    """

    def __init__(self, cache_dir: Path, limit_bytes: int) -> None:
        self._cache_dir = cache_dir
        self._plans = cache_dir / PLANS_FOLDER
        self._limit_bytes = limit_bytes

    def find(self, key: str) -> Plan | None:
        """The plan of this name, or None when there is none or its files are not what they were.

        Reads the whole plan to be sure.
        """
        folder = self._plans / key
        try:
            stored = msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=_StoredPlan)
            if stored.files != _digests(folder):
                return None
            os.utime(folder / PLAN_FILE)
        except (OSError, msgspec.MsgspecError):
            return None
        return _placed(stored.plan, folder)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """An empty folder to write a plan's files in; gone afterwards unless it was published.

        Raises:
            OSError: the cache directory cannot be written.
        """
        self._plans.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as stack:
            with self._locked():
                self._remove_abandoned_drafts()
                folder = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=self._plans))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                stack.enter_context(_flock(folder))  # says that this draft has a living author
            yield folder

    def publish(self, draft: Path, key: str, plan: Plan) -> Plan:
        """Turn a draft into the plan of this name, then make room for it.

        Args:
            plan: its graphs are names of files in the draft.

        Returns: the plan under its final path; another process's, if that was quicker.
        """
        content = msgspec.json.encode(_StoredPlan(plan, _digests(draft)))
        (draft / PLAN_FILE).write_bytes(content)
        for path in (*draft.iterdir(), draft):
            fsync(path)
        folder = self._plans / key
        with self._locked():
            quicker = self.find(key)
            if quicker is None:
                self._discard(folder)
                draft.rename(folder)
                fsync(self._plans)
            os.utime(folder / PLAN_FILE)
            with suppress(OSError):  # what cannot be removed now is tried again next time
                self._make_room()
                self._forget_old_entries()
        return quicker or _placed(plan, folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Held briefly, around changes to which folders there are."""
        lock = self._cache_dir / "lock"
        lock.touch(mode=0o600)
        with _flock(lock):
            yield

    def _remove_abandoned_drafts(self) -> None:
        for folder in self._plans.glob(f"{DRAFT_PREFIX}*"):
            with suppress(OSError), _flock(folder, fcntl.LOCK_NB):  # held: its author lives
                shutil.rmtree(folder)

    def _discard(self, folder: Path) -> None:
        """Remove a plan in one step for all who look, then its files."""
        grave = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=self._plans))
        with suppress(FileNotFoundError):
            folder.rename(grave)
        shutil.rmtree(grave)

    def _make_room(self) -> None:
        """Remove the plans least recently used until the rest fits the limit."""
        now = time.time()  # the clock of file times
        used = {folder: _last_used(folder) for folder in self._plans.glob("[!.]*")}
        sizes = {folder: _size_bytes(folder) for folder in used}
        total_bytes = sum(sizes.values())
        for folder in sorted(used, key=used.__getitem__):
            if total_bytes <= self._limit_bytes or used[folder] > now - _JUST_USED_S:
                break
            self._discard(folder)
            total_bytes -= sizes[folder]

    def _forget_old_entries(self) -> None:
        oldest = time.time() - _INDEX_LIFE_S
        for entry in (self._cache_dir / INDEX_FOLDER).glob("*.json"):
            if entry.stat().st_mtime < oldest:
                entry.unlink()


def _placed(plan: Plan, folder: Path) -> Plan:
    packed_graph = None if plan.packed_graph is None else str(folder / plan.packed_graph)
    return msgspec.structs.replace(plan, graph=str(folder / plan.graph), packed_graph=packed_graph)


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for path in folder.iterdir():
        if path.name != PLAN_FILE:
            with path.open("rb") as file:
                digests[path.name] = file_digest(file, blake2b).hexdigest()
    return digests


def _last_used(folder: Path) -> float:
    try:
        return (folder / PLAN_FILE).stat().st_mtime
    except OSError:  # not a plan: nobody can use it
        return 0.0


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@contextmanager
def _flock(path: Path, flags: int = 0) -> Iterator[None]:
    """Hold a file or folder against other processes; with LOCK_NB, OSError if it is held."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(fd)
