"""The plans on disk: appearing, being found, making room, being broken."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from snoozeml.core.plan import INDEX_FOLDER, PLAN_FILE, PLANS_FOLDER, Plan
from snoozeml.core.tensors import Signature
from snoozeml.prepare.cache import PlanCache

PLAN = Plan(
    format="onnx",
    graph="plan.onnx",
    prepared=True,
    signature=Signature((), ()),
    batching="alone",
    weights_bytes=1000,
)


def make(cache: PlanCache, key: str, weights: bytes = bytes(1000)) -> Plan:
    with cache.draft() as draft:
        (draft / "plan.onnx").write_bytes(b"graph")
        (draft / "weights").write_bytes(weights)
        return cache.publish(draft, key, PLAN)


def set_last_use(cache_dir: Path, key: str, seconds_ago: float) -> None:
    then = time.time() - seconds_ago
    os.utime(cache_dir / PLANS_FOLDER / key / PLAN_FILE, (then, then))


def names(cache_dir: Path) -> set[str]:
    return {path.name for path in (cache_dir / PLANS_FOLDER).iterdir()}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield
    os.close(fd)


def test_a_published_plan_is_found_with_an_absolute_graph(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path, 1 << 20)
    assert cache.find("key") is None
    published = make(cache, "key")
    assert published.graph == str(tmp_path / PLANS_FOLDER / "key" / "plan.onnx")
    assert PlanCache(tmp_path, 1 << 20).find("key") == published
    assert names(tmp_path) == {"key"}


def test_a_draft_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with PlanCache(tmp_path, 1 << 20).draft() as draft:
            (draft / "plan.onnx").write_bytes(b"graph")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (PLAN_FILE, b""),
        (PLAN_FILE, b'{"plan":{"graph":"\xff'),
        (PLAN_FILE, b"{}"),
        ("weights", bytes(999)),
        ("weights", b"\1" + bytes(999)),
        ("plan.onnx", b""),
        ("surplus", b""),
    ],
)
def test_a_damaged_plan_is_not_found_and_can_be_replaced(
    tmp_path: Path, file: str, content: bytes
) -> None:
    cache = PlanCache(tmp_path, 1 << 20)
    make(cache, "key")
    (tmp_path / PLANS_FOLDER / "key" / file).write_bytes(content)
    assert cache.find("key") is None
    make(cache, "key")
    assert cache.find("key") is not None
    assert names(tmp_path) == {"key"}


@pytest.mark.parametrize("file", [PLAN_FILE, "weights", "plan.onnx"])
def test_a_plan_with_a_file_missing_is_not_found(tmp_path: Path, file: str) -> None:
    cache = PlanCache(tmp_path, 1 << 20)
    make(cache, "key")
    (tmp_path / PLANS_FOLDER / "key" / file).unlink()
    assert cache.find("key") is None


def test_of_two_plans_made_at_once_the_quicker_stays(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path, 1 << 20)
    with cache.draft() as draft:
        (draft / "plan.onnx").write_bytes(b"slower")
        inode = Path(make(cache, "key").graph).stat().st_ino
        plan = cache.publish(draft, "key", PLAN)
    assert Path(plan.graph).stat().st_ino == inode
    assert names(tmp_path) == {"key"}


def test_the_least_recently_used_plans_make_room(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path, 35_000)  # three plans with their descriptions, not four
    weights = bytes(10_000)
    for key, seconds_ago in (("oldest", 3000), ("old", 2000), ("found again", 4000)):
        make(cache, key, weights)
        set_last_use(tmp_path, key, seconds_ago)
    cache.find("found again")
    make(cache, "new", weights)
    assert names(tmp_path) == {"old", "found again", "new"}


def test_plans_just_used_stay_even_beyond_the_limit(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path, 0)
    make(cache, "used")
    set_last_use(tmp_path, "used", seconds_ago=5)
    make(cache, "new")
    assert names(tmp_path) == {"used", "new"}


def test_a_removed_plan_stays_mapped(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path, 0)
    with Path(make(cache, "old").graph).open("rb") as in_use:
        set_last_use(tmp_path, "old", seconds_ago=3000)
        make(cache, "new")
        assert names(tmp_path) == {"new"}
        assert in_use.read() == b"graph"


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path, 1 << 20)
    dead, living = (tmp_path / PLANS_FOLDER / f".draft-{name}" for name in ("dead", "living"))
    for folder in (dead, living):
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(bytes(10))
    with locked(living):
        make(cache, "key")
    assert names(tmp_path) == {"key", living.name}


def test_old_index_entries_are_dropped(tmp_path: Path) -> None:
    index = tmp_path / INDEX_FOLDER
    index.mkdir()
    for name in ("fresh.json", "stale.json"):
        (index / name).touch()
    os.utime(index / "stale.json", (0, 0))
    make(PlanCache(tmp_path, 1 << 20), "key")
    assert [path.name for path in index.iterdir()] == ["fresh.json"]


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = PlanCache(tmp_path / "file", 1 << 20)
    assert cache.find("key") is None
    with pytest.raises(OSError, match="Not a directory"), cache.draft():
        pass
