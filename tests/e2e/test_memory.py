"""Memory: who gets how much, what becomes of those that get none, and what the kernel says."""

import os
import re
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnxruntime
import pytest

import models
from e2e import processes
from e2e.cgroups import MemoryCgroup, NotPermitted, limited_memory
from e2e.client import Reply, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually

CAPACITY: Final = 'snoozeml_model_deallocations_total{reason="capacity"}'
OOM: Final = 'snoozeml_model_deallocations_total{reason="oom"}'
MIB: Final = 2**20


class Hall(NamedTuple):
    """A classifier that is nothing but its weights."""

    path: Path
    features: int
    label: int

    @classmethod
    def build(cls, path: Path, mib: int, seed: int) -> "Hall":
        features = 1024
        models.linear_model(path, features, mib * 2**8, seed)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (label,) = session.run(["label"], {"X": np.ones((1, features), dtype=np.float32)})
        return cls(path, features, int(label[0]))

    def ask(self, daemon: Daemon, **more: Any) -> Reply:
        row = tensor("X", [1, self.features], [1] * self.features)
        return daemon.infer(self.path.stem, row, outputs=["label"], **more)

    def must_answer(self, daemon: Daemon) -> None:
        assert self.ask(daemon).outputs() == {"label": [self.label]}


SMALL_MIB: Final = 40
LARGE_MIB: Final = 110
ROOM_MIB: Final = 150
"""For two of the small ones with all that a worker takes beside the weights, or the large one."""


@pytest.fixture(scope="module")
def halls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Hall]:
    folder = tmp_path_factory.mktemp("halls")
    sizes = {"small-0": SMALL_MIB, "small-1": SMALL_MIB, "small-2": SMALL_MIB, "small-3": SMALL_MIB}
    sizes["large"] = LARGE_MIB
    return {
        name: Hall.build(folder / f"{name}.onnx", mib, seed)
        for seed, (name, mib) in enumerate(sizes.items())
    }


def with_halls(halls: dict[str, Hall], server: str = "") -> str:
    """Settings for a daemon with these models, each of which may be evicted at once."""
    entries = (f'[models."{name}"]\npath = "{hall.path}"\n' for name, hall in halls.items())
    return "".join([f"[server]\n{server}\n[defaults]\nmin_residency_secs = 0\n", *entries])


def loaded(daemon: Daemon) -> set[str]:
    listed = daemon.request("GET", "/v1/models").json()
    return {model["id"] for model in listed if model["state"] != "idle"}


def assert_refused(reply: Reply, code: str) -> None:
    assert (reply.status, reply.json()["code"]) == (503, code), reply
    assert re.fullmatch(r"[1-9]\d*", reply.headers["retry-after"])


def test_with_memory_for_two_of_four_models_all_are_served_in_turn(
    serve: Serve, halls: dict[str, Hall]
) -> None:
    daemon = serve(with_halls(halls, f'max_memory = "{ROOM_MIB}MiB"'))
    small = [hall for name, hall in halls.items() if name.startswith("small")]
    for hall in small * 3:
        hall.must_answer(daemon)
        taken = sum(map(processes.proportional_bytes, daemon.workers()))
        assert taken <= ROOM_MIB * MIB
    assert len(loaded(daemon)) == 2, "there is room for two"
    assert daemon.metrics()[CAPACITY] == 10


def test_a_large_model_takes_the_room_of_two_small_ones(
    serve: Serve, halls: dict[str, Hall]
) -> None:
    daemon = serve(with_halls(halls, f'max_memory = "{ROOM_MIB}MiB"'))
    for name in ("small-0", "small-1", "large"):
        halls[name].must_answer(daemon)
    assert loaded(daemon) == {"large"}


def test_a_model_larger_than_all_memory_is_refused_and_nobody_leaves_for_it(
    serve: Serve, halls: dict[str, Hall]
) -> None:
    daemon = serve(with_halls(halls, 'max_memory = "100MiB"'))
    halls["small-0"].must_answer(daemon)
    for _ in range(2):
        started = time.monotonic()
        reply = halls["large"].ask(daemon)
        assert time.monotonic() - started < 5
        assert_refused(reply, "out_of_memory")
        sizes = [int(mib) for mib in re.findall(r"(\d+) MiB", reply.json()["error"])]
        assert 100 in sizes
        assert [mib for mib in sizes if LARGE_MIB <= mib < 2 * LARGE_MIB]
    assert loaded(daemon) == {"small-0"}


def test_waiting_for_memory_ends_at_the_deadline(serve: Serve, halls: dict[str, Hall]) -> None:
    daemon = serve(with_halls(halls, f'max_memory = "{ROOM_MIB}MiB"'))
    halls["small-0"].must_answer(daemon)
    with ThreadPoolExecutor(1) as pool:
        with processes.frozen(daemon.worker()):
            busy = pool.submit(halls["small-0"].must_answer, daemon)
            eventually(lambda: daemon.model("small-0")["state"] == "busy", "the request is there")
            reply = halls["large"].ask(daemon, timeout_ms=400)
            assert_refused(reply, "out_of_memory")
            assert f"{ROOM_MIB} MiB" in reply.json()["error"]
        busy.result()
    halls["large"].must_answer(daemon)


def test_memory_is_what_the_kernel_says(serve: Serve, halls: dict[str, Hall]) -> None:
    daemon = serve(with_halls(halls))
    halls["large"].must_answer(daemon)
    halls["small-0"].must_answer(daemon)
    found = sum(map(processes.proportional_bytes, daemon.workers()))
    told = daemon.model("large")["memory_bytes"] + daemon.model("small-0")["memory_bytes"]
    assert told == pytest.approx(found, abs=2 * MIB)
    before = daemon.model("large")["memory_bytes"]
    assert before > LARGE_MIB * MIB
    answer = daemon.control("large", "unload")
    assert answer["memory_before_bytes"] == pytest.approx(before, abs=2 * MIB)
    assert answer["memory_after_bytes"] == daemon.model("large")["memory_bytes"] == 0
    assert answer["freed_bytes"] == answer["memory_before_bytes"]


def test_models_that_are_used_much_keep_to_the_limit_too(
    serve: Serve, halls: dict[str, Hall]
) -> None:
    """A worker that is used may take more than it was loaded with: there must be room for that."""
    limit_mib = 180
    daemon = serve(with_halls(halls, f'max_memory = "{limit_mib}MiB"'))
    most, until = 0, time.monotonic() + 2
    while time.monotonic() < until:
        for name in ("small-0", "small-1", "small-2"):
            halls[name].must_answer(daemon)
            most = max(most, sum(map(processes.proportional_bytes, daemon.workers())))
    assert most <= 1.05 * limit_mib * MIB


@pytest.mark.parametrize(("limit_mib", "is_packed"), [(80, False), (ROOM_MIB, True)])
def test_weights_are_packed_where_there_is_room_to_do_it(
    serve: Serve, halls: dict[str, Hall], limit_mib: int, is_packed: bool
) -> None:
    """Their only matrix is packed anew to find its like, which takes as much again for a moment."""
    daemon = serve(with_halls(halls, f'max_memory = "{limit_mib}MiB"'))
    for _ in range(100):
        halls["small-0"].must_answer(daemon)
    if is_packed:
        eventually(lambda: first_is_unmapped(daemon), "it packs")
    assert first_is_unmapped(daemon) is is_packed
    halls["small-0"].must_answer(daemon)


def first_is_unmapped(daemon: Daemon) -> bool:
    """Whether the worker does not need the first of its weights any more the way it is."""
    return 0 not in processes.mapped_parts(daemon.worker(), "weights")


def test_a_model_that_is_loaded_and_not_used_does_not_show_its_size(
    serve: Serve, halls: dict[str, Hall]
) -> None:
    """Its weights are mapped, and take memory only once they are read."""
    daemon = serve(with_halls(halls, f'max_memory = "{ROOM_MIB}MiB"'))
    small = [name for name in halls if name.startswith("small")]
    for name in small:
        daemon.control(name, "load")
        daemon.control(name, "unload")
    for name in small:
        halls[name].must_answer(daemon)
        assert sum(map(processes.proportional_bytes, daemon.workers())) <= ROOM_MIB * MIB


def test_a_model_that_has_once_had_much_room_is_content_with_less(
    serve: Serve, halls: dict[str, Hall]
) -> None:
    daemon = serve(with_halls(halls, 'max_memory = "1GiB"'))
    for _ in range(40):  # enough to be worth more memory for more speed
        halls["large"].must_answer(daemon)
    assert daemon.stop() == 0
    daemon = serve(with_halls(halls, f'max_memory = "{ROOM_MIB}MiB"'))
    halls["large"].must_answer(daemon)


# Allocations that fail


def allow_more(pid: int, mib: int) -> None:
    """Let a process allocate so much more and no further; what it starts inherits the limit."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    now = pages * os.sysconf("SC_PAGE_SIZE")
    resource.prlimit(pid, resource.RLIMIT_AS, (now + mib * MIB, resource.RLIM_INFINITY))


def allow_all(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def fill(daemon: Daemon, mib: int) -> Reply:
    return daemon.infer("hungry", tensor("mib", [1, 1], [mib]))


@pytest.fixture
def hungry(models_dir: Path) -> None:
    models.hungry_model(models_dir / "hungry.onnx")
    models.identity_model(models_dir / "neighbour.onnx")


@pytest.mark.usefixtures("hungry")
def test_a_run_that_finds_no_memory_is_tried_again_with_one_neighbour_less(serve: Serve) -> None:
    daemon = serve("[defaults]\nmin_residency_secs = 0\n")
    daemon.control("neighbour", "load")
    daemon.control("hungry", "load")
    allow_more(daemon.spare(), 200)  # whatever worker it will be tried on
    for worker in daemon.workers():
        allow_more(worker, 200)

    reply = fill(daemon, 400)

    assert_refused(reply, "out_of_memory")
    assert daemon.metrics()[OOM] == 1
    eventually(lambda: daemon.model("neighbour")["state"] == "idle", "the neighbour has left")
    assert fill(daemon, 10).outputs() == {"y": [10.0]}, "the model serves what it can"

    allow_all(daemon.spare())
    for worker in daemon.workers():
        allow_all(worker)
    assert fill(daemon, 400).outputs() == {"y": [400.0]}, "what was too much is not for ever"


@pytest.mark.usefixtures("hungry")
def test_a_batch_that_finds_no_memory_is_run_in_parts(serve: Serve) -> None:
    daemon = serve()
    assert fill(daemon, 1).status == 200
    worker = daemon.worker()
    allow_more(worker, 250)
    sizes = (100, 101, 102, 103)
    with ThreadPoolExecutor(4) as pool:
        with processes.frozen(worker):  # so that they arrive together, and are merged
            sent = [pool.submit(fill, daemon, mib) for mib in sizes]
            eventually(lambda: daemon.model("hungry")["state"] == "busy", "they are there")
            time.sleep(0.1)
        replies = [future.result() for future in sent]
    assert [reply.outputs() for reply in replies] == [{"y": [float(mib)]} for mib in sizes]
    assert daemon.worker() == worker, "no memory for a batch is no reason to start anew"


def test_a_load_that_finds_no_memory_is_tried_again_with_one_neighbour_less(
    serve: Serve, halls: dict[str, Hall]
) -> None:
    daemon = serve(with_halls(halls))
    halls["large"].must_answer(daemon)
    daemon.control("large", "unload")
    halls["small-0"].must_answer(daemon)
    allow_more(daemon.spare(), LARGE_MIB // 2)
    reply = halls["large"].ask(daemon)
    assert_refused(reply, "out_of_memory")
    assert daemon.metrics()[OOM] == 1
    assert "out of memory" in daemon.model("large")["last_error"]
    allow_all(daemon.spare())
    eventually(lambda: halls["large"].ask(daemon).status == 200, "it loads when there is memory")
    halls["large"].must_answer(daemon)


# Memory that the kernel limits

LIMIT_MIB: Final = 320


@pytest.fixture
def cgroup() -> Iterator[MemoryCgroup]:
    try:
        with limited_memory(LIMIT_MIB * MIB) as made:
            yield made
    except NotPermitted as error:
        pytest.skip(f"no memory cgroup: {error}")


@pytest.mark.usefixtures("hungry")
def test_the_kernel_ends_a_worker_that_takes_too_much_and_nobody_else(
    cgroup: MemoryCgroup, serve: Serve
) -> None:
    with cgroup.joined():
        daemon = serve("[defaults]\nmin_residency_secs = 0\n")
    assert fill(daemon, 10).status == 200
    daemon.control("neighbour", "load")

    reply = fill(daemon, 2 * LIMIT_MIB)

    assert_refused(reply, "out_of_memory")
    assert cgroup.oom_kills() == 2, "it was tried twice"
    assert daemon.metrics()[OOM] == 1, "one neighbour had to leave"
    assert fill(daemon, 10).outputs() == {"y": [10.0]}
    assert daemon.stop() == 0


def test_a_daemon_in_a_small_cgroup_keeps_to_it_without_being_told(
    cgroup: MemoryCgroup, serve: Serve, halls: dict[str, Hall]
) -> None:
    """Its models get four fifths of the cgroup: too little for all of them, enough for each."""
    daemon = serve(with_halls(halls))
    for hall in halls.values():  # preparing takes more memory than serving, and is not limited
        hall.must_answer(daemon)
    assert daemon.stop() == 0

    with cgroup.joined():
        daemon = serve(with_halls(halls))
    for name in [*halls] * 3:
        halls[name].must_answer(daemon)
    assert cgroup.oom_kills() == 0
    assert daemon.metrics()[CAPACITY] > 0
    assert daemon.stop() == 0
