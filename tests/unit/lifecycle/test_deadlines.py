"""Deadlines on a real event loop, in milliseconds."""

import asyncio

from snoozeml.lifecycle.deadlines import Deadlines


class Thing:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.settled = False
        self.timer: asyncio.TimerHandle | None = None


def expired(delays_s: list[float], *, settled: set[int], wait_s: float) -> list[int]:
    """Indices of what expired, in order; things are added in the order of `delays_s`."""

    async def scene() -> list[int]:
        over: list[int] = []
        deadlines = Deadlines[Thing](lambda thing: over.append(things.index(thing)))
        now = asyncio.get_running_loop().time()
        things = [Thing(now + delay_s) for delay_s in delays_s]
        for thing in things:
            deadlines.add(thing)
        for index in settled:
            things[index].settled = True
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
        deadlines = Deadlines[Thing](lambda thing: over.append("short"))
        now = asyncio.get_running_loop().time()
        longer = Thing(now + 60)
        deadlines.add(longer)
        longer.settled = True
        deadlines.add(Thing(now + 0.01))
        await asyncio.sleep(0.1)
        return over

    assert asyncio.run(scene()) == ["short"]


def test_settled_things_are_forgotten_behind_a_slow_head() -> None:
    async def scene() -> int:
        deadlines = Deadlines[Thing](lambda thing: None)
        now = asyncio.get_running_loop().time()
        deadlines.add(Thing(now + 60))
        for _ in range(10_000):
            thing = Thing(now + 60)
            deadlines.add(thing)
            thing.settled = True
        return len(deadlines._queue)

    assert asyncio.run(scene()) < 600
