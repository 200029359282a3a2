"""Deadlines on a real event loop, in milliseconds."""

import asyncio
import weakref

from snoozeml.lifecycle.deadlines import Deadlines


def expired(delays_s: list[float], *, settled: set[int], wait_s: float) -> list[int]:
    """Indices of what expired, in order; things are added in the order of `delays_s`."""

    async def scene() -> list[int]:
        over: list[int] = []
        deadlines = Deadlines[int](over.append)
        now = asyncio.get_running_loop().time()
        due = [deadlines.add(now + delay_s, index) for index, delay_s in enumerate(delays_s)]
        for index in settled:
            due[index].settle()
        await asyncio.sleep(wait_s)
        return over

    return asyncio.run(scene())


def test_each_expires_at_its_own_time() -> None:
    assert expired([0.01, 0.02, 5.0], settled=set(), wait_s=0.1) == [0, 1]


def test_what_is_settled_does_not_expire() -> None:
    assert expired([0.01, 0.02, 0.03], settled={0, 2}, wait_s=0.1) == [1]


def test_a_shorter_deadline_behind_a_longer_one_is_kept() -> None:
    assert expired([5.0, 0.02, 0.01], settled=set(), wait_s=0.1) == [2, 1]


def test_a_shorter_deadline_after_a_longer_one_is_settled_is_kept() -> None:
    async def scene() -> list[str]:
        over: list[str] = []
        deadlines = Deadlines[str](over.append)
        now = asyncio.get_running_loop().time()
        deadlines.add(now + 60, "long").settle()
        deadlines.add(now + 0.01, "short")
        await asyncio.sleep(0.1)
        return over

    assert asyncio.run(scene()) == ["short"]


def test_settled_things_are_forgotten_behind_a_slow_head() -> None:
    async def scene() -> int:
        deadlines = Deadlines[int](lambda number: None)
        now = asyncio.get_running_loop().time()
        deadlines.add(now + 60, 0)
        for number in range(10_000):
            deadlines.add(now + 60, number).settle()
        return len(deadlines._queue)

    assert asyncio.run(scene()) < 600


def test_nothing_of_a_settled_thing_is_kept() -> None:
    class Thing:
        pass

    async def scene() -> None:
        deadlines = Deadlines[Thing](lambda thing: None)
        thing = Thing()
        deadlines.add(asyncio.get_running_loop().time() + 60, thing).settle()
        seen = weakref.ref(thing)
        del thing
        assert seen() is None

    asyncio.run(scene())
