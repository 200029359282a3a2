"""What one stream may have under way."""

import asyncio

import pytest

from snoozeml.errors import Overloaded
from snoozeml.fronts.grpc.held import HeldMessages
from snoozeml.fronts.grpc.room import Room
from snoozeml.fronts.limits import ClientLimits

MOST = 1600


def alone() -> Room:
    """One whose stream has the server for itself."""
    return Room(MOST, HeldMessages(ClientLimits()))


async def enters(room: Room, size: int) -> bool:
    """Whether there is room now."""
    try:
        async with asyncio.timeout(0.01):
            await room.enter(size)
    except TimeoutError:
        return False
    return True


async def filled(room: Room, size: int) -> int:
    """How many requests of this size have room together."""
    count = 0
    while await enters(room, size):
        count += 1
    return count


async def proven(answer_bytes: int) -> Room:
    """One whose first answer has been read."""
    room = alone()
    await room.enter(1)
    room.answered(1, answer_bytes)
    room.leave(answer_bytes)
    return room


def test_one_request_has_room_whatever_its_size() -> None:
    async def scene() -> None:
        room = alone()
        assert await enters(room, 10 * MOST)
        assert not await enters(room, 1)
        room.answered(10 * MOST, 10 * MOST)
        assert not await enters(room, 1)
        room.leave(10 * MOST)
        assert await enters(room, 10 * MOST)

    asyncio.run(scene())


def test_until_there_is_an_answer_only_a_few_are_sent_for() -> None:
    async def scene() -> None:
        assert await filled(alone(), 0) == 16

    asyncio.run(scene())


def test_what_is_held_and_what_will_be_stay_within_the_bound() -> None:
    async def scene() -> None:
        assert await filled(await proven(answer_bytes=60), 40) == 16
        assert await filled(await proven(answer_bytes=0), 40) == 40

    asyncio.run(scene())


def test_there_are_never_more_than_256() -> None:
    async def scene() -> None:
        assert await filled(await proven(answer_bytes=0), 0) == 256

    asyncio.run(scene())


def test_answers_that_are_not_read_leave_no_room() -> None:
    async def scene() -> None:
        room = await proven(answer_bytes=100)
        assert await filled(room, 100) == 8
        for _ in range(8):
            room.answered(100, 100)
        assert await filled(room, 100) == 4  # half of the bound is taken by answers
        room.leave(100)
        assert await filled(room, 100) == 0
        room.leave(100)
        assert await filled(room, 100) == 1

    asyncio.run(scene())


def test_whoever_waits_is_woken() -> None:
    async def scene() -> None:
        room = alone()
        await room.enter(MOST)
        waiting = asyncio.create_task(room.enter(MOST))
        await asyncio.sleep(0)
        room.answered(MOST, 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        room.leave(1)
        await waiting

    asyncio.run(scene())


def test_what_is_not_answered_is_given_back_when_the_stream_ends() -> None:
    async def scene() -> None:
        held = HeldMessages(ClientLimits())
        room = Room(MOST, held)
        assert await enters(room, 1000)
        assert not await enters(room, 601), "it waits, and has come none the less"
        assert held.size_bytes == 1601
        room.answered(1000, 0)
        assert held.size_bytes == 601
        room.close()
        assert held.size_bytes == 0

    asyncio.run(scene())


def test_what_all_clients_hold_leaves_no_room() -> None:
    async def scene() -> None:
        held = HeldMessages(ClientLimits(request_bytes=MOST, inflight_bytes=2 * MOST))
        held.size_bytes = MOST + 1
        room = Room(MOST, held)
        with pytest.raises(Overloaded, match=f"{2 * MOST} bytes together"):
            await room.enter(MOST)
        assert held.size_bytes == MOST + 1

    asyncio.run(scene())


def test_a_stream_asks_for_more_only_where_the_largest_request_would_have_room() -> None:
    async def scene() -> None:
        held = HeldMessages(ClientLimits(request_bytes=MOST, inflight_bytes=2 * MOST))
        held.size_bytes = MOST
        room = Room(MOST, held)
        await room.for_another()
        await room.enter(1)
        waiting = asyncio.create_task(room.for_another())
        await asyncio.sleep(0)
        assert not waiting.done()
        room.answered(1, 0)
        await waiting

    asyncio.run(scene())
