"""The memories and their limits, over devices that are made up."""

import asyncio
import os
import sys
import time
from subprocess import PIPE, Popen

import pytest

from snoozeml.lifecycle import pools
from snoozeml.lifecycle.pools import Pools, limit_name
from snoozeml.lifecycle.residency import RAM, Pool
from unit.lifecycle.fake_accelerators import FakeAccelerators

PID = 2**22 + 1  # above the highest that Linux gives


def pools_of(gpus: FakeAccelerators, max_vram: int | str = "80%") -> Pools:
    return Pools(memory_bytes=1000, max_vram=max_vram, accelerators=gpus)


@pytest.mark.parametrize(("max_vram", "limit"), [("80%", 800), (300, 300), ("500B", 500)])
def test_each_device_has_a_limit_of_its_own(max_vram: int | str, limit: int) -> None:
    gpus = FakeAccelerators(gpu0=1000, gpu1=2000)
    gpus.others_bytes = 100
    subject = pools_of(gpus, max_vram)
    assert subject.pool("cuda:0") == Pool(limit, 900)
    assert subject.pool("cuda:2") is None
    ram = subject.pool(RAM)
    assert ram is not None
    assert ram.limit_bytes == 1000


def test_a_limit_goes_by_the_name_of_its_setting() -> None:
    assert (limit_name(RAM), limit_name("cuda:1")) == ("max_memory", "max_vram of cuda:1")


def test_what_a_worker_takes_is_counted_where_it_runs() -> None:
    gpus = FakeAccelerators(gpu0=1000, gpu1=1000)
    gpus.taken["cuda:1"][os.getpid()] = 300
    subject = pools_of(gpus)
    assert subject.taken(os.getpid(), "cuda:1")["cuda:1"] == 300
    assert subject.vram_taken(os.getpid(), "cuda") == {"cuda:0": None}
    on_cpu = subject.taken(os.getpid(), "cpu")
    assert on_cpu.keys() == {RAM}
    assert on_cpu[RAM] is None or on_cpu[RAM] > 0


def test_what_a_worker_has_started_counts_as_its_own() -> None:
    gpus = FakeAccelerators(gpu0=1000)
    subject = pools_of(gpus)
    alone = subject.taken(os.getpid(), "cpu")[RAM]
    code = f"kept = bytearray(b'x') * {64 << 20}; print(); input()"
    with Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        gpus.taken["cuda:0"][child.pid] = 300
        together = subject.taken(os.getpid(), "cuda:0")
        child.kill()
    assert together["cuda:0"] == 300
    if alone is not None and together[RAM] is not None:  # not on macOS
        assert together[RAM] - alone > 60 << 20


def test_no_device_is_looked_at_for_a_model_on_the_cpu() -> None:
    gpus = FakeAccelerators(gpu0=1000)
    subject = pools_of(gpus)
    asyncio.run(subject.wake([RAM]))
    subject.pool(RAM)
    subject.taken(os.getpid(), "cpu")
    assert not gpus.is_asked
    asyncio.run(subject.wake([RAM, "cuda:0"]))
    assert gpus.is_asked


def test_memory_is_free_when_the_driver_says_so() -> None:
    gpus = FakeAccelerators(gpu0=1000)
    gpus.taken["cuda:0"][PID] = 300
    started = time.monotonic()
    gpus.forgets_at[PID] = started + 0.05
    asyncio.run(pools_of(gpus).released(PID))
    assert time.monotonic() >= started + 0.05
    assert not gpus.holds(PID)


def test_a_driver_that_never_forgets_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pools, "_RELEASE_S", 0.05)
    gpus = FakeAccelerators(gpu0=1000)
    gpus.taken["cuda:0"][PID] = 300
    asyncio.run(pools_of(gpus).released(PID))
    (warning,) = caplog.messages
    assert str(PID) in warning
