"""The alarm on a real event loop, in milliseconds."""

import asyncio
from collections.abc import Callable

from snoozeml.lifecycle.alarm import Alarm


def rings(use: Callable[[Alarm, float], None], wait_s: float = 0.05) -> list[float]:
    """How long after the start the alarm rang; `use` gets it and the loop's time at the start."""

    async def scene() -> list[float]:
        clock = asyncio.get_running_loop().time
        start, heard = clock(), list[float]()
        use(Alarm(lambda: heard.append(clock() - start)), start)
        await asyncio.sleep(wait_s)
        return heard

    return asyncio.run(scene())


def test_it_rings_once_for_the_earliest_instant() -> None:
    def use(alarm: Alarm, now: float) -> None:
        for delay_s in (5.0, 0.01, 0.02):
            alarm.ring_by(now + delay_s)

    (after_s,) = rings(use)
    assert after_s >= 0.0099


def test_after_it_rang_it_can_be_set_for_later() -> None:
    def use(alarm: Alarm, now: float) -> None:
        alarm.ring_by(now + 0.005)
        asyncio.get_running_loop().call_at(now + 0.01, alarm.ring_by, now + 0.02)

    assert len(rings(use, wait_s=0.1)) == 2


def test_a_cancelled_one_is_silent_until_it_is_set_again() -> None:
    def silence(alarm: Alarm, now: float) -> None:
        alarm.ring_by(now)
        alarm.cancel()

    def revive(alarm: Alarm, now: float) -> None:
        silence(alarm, now)
        alarm.ring_by(now + 0.01)

    assert not rings(silence)
    assert len(rings(revive)) == 1
