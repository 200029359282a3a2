"""Who is too slow, who leaves when there are too many, and whose body is given up."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from snoozeml.fronts.http.crowd import RESERVE, Crowd
from snoozeml.fronts.http.limits import Stage, Transfer
from snoozeml.fronts.limits import ClientLimits

LIMITS = ClientLimits(
    connections=4,
    inflight_bytes=100,
    header_timeout_s=10.0,
    transfer_timeout_s=30.0,
    bytes_per_s=1000,
)


class FakeClient:
    """Does what it is told, and keeps what it was told."""

    def __init__(self, transfer: Transfer | None = None, idle_until: float | None = None) -> None:
        self.transfer = transfer
        self.idle_until = idle_until
        self.held_bytes = 0
        self.told: list[str] = []
        self.crowd: Crowd

    def due_at(self, now: float) -> float:
        assert self.transfer is not None
        return self.transfer.due_at(LIMITS)

    def expire(self) -> None:
        self.told.append("expire")
        self.crowd.forget(self)

    def give_way(self) -> None:
        self.told.append("give way")

    def give_up_body(self) -> None:
        self.told.append("give up")
        self.crowd.release(self.held_bytes)
        self.held_bytes = 0
        self.crowd.forget(self)

    def sends(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.crowd.hold(self, size_bytes)


def in_crowd(
    scene: Callable[[Crowd, list[FakeClient]], Awaitable[None]], *clients: FakeClient
) -> None:
    async def play() -> None:
        everybody = list(clients)
        crowd = Crowd(LIMITS, everybody)
        for client in everybody:
            client.crowd = crowd
        await scene(crowd, everybody)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("stage", "moved_bytes", "due_after_s"),
    [
        (Stage.HEAD, 0, 10.0),
        (Stage.HEAD, 60_000, 10.0),  # a head has one size
        (Stage.BODY, 30, 30.03),  # a trickle buys next to nothing
        (Stage.BODY, 60_000, 90.0),
        (Stage.ANSWER, 60_000, 90.0),
        (Stage.HANG_UP, 60_000, 1.0),
    ],
)
def test_what_moves_buys_time(stage: Stage, moved_bytes: int, due_after_s: float) -> None:
    transfer = Transfer(stage, 100.0)
    transfer.moved_bytes = moved_bytes
    assert transfer.due_at(LIMITS) == pytest.approx(100.0 + due_after_s)


def test_whoever_was_refused_may_finish_but_not_trickle() -> None:
    transfer = Transfer(Stage.HANG_UP, 100.0)
    transfer.heard_at, transfer.moved_bytes = 125.0, 20
    assert transfer.due_at(LIMITS) == pytest.approx(126.0)
    transfer.heard_at = 140.0
    assert transfer.due_at(LIMITS) == pytest.approx(130.02)


def test_only_those_whose_time_is_up_expire() -> None:
    async def scene(crowd: Crowd, clients: list[FakeClient]) -> None:
        now = asyncio.get_running_loop().time()
        for client, ago_s in zip(clients, (11.0, 5.0, 11.0), strict=True):
            client.transfer = Transfer(Stage.HEAD, now - ago_s)
            crowd.watch(client)
        crowd.forget(clients[2])
        await asyncio.sleep(1.1)
        assert [client.told for client in clients] == [["expire"], [], []]

    in_crowd(scene, FakeClient(), FakeClient(), FakeClient())


def test_the_slow_and_then_the_longest_idle_make_room() -> None:
    async def scene(crowd: Crowd, clients: list[FakeClient]) -> None:
        now = asyncio.get_running_loop().time()
        served, fresh, idle, idle_longer, trickling = clients
        fresh.transfer = Transfer(Stage.BODY, now)
        idle.idle_until, idle_longer.idle_until = now + 50, now + 20
        trickling.transfer = Transfer(Stage.HEAD, now - 2)
        leaves = []
        for _ in range(3):
            assert crowd.welcome()
            leaves += [client for client in clients if client.told and client not in leaves]
            clients.append(FakeClient())
        assert leaves == [trickling, idle_longer, idle]
        assert not crowd.welcome()  # all the others are being served
        assert not served.told
        assert not fresh.told

    in_crowd(scene, *(FakeClient() for _ in range(5)))


def test_below_the_limit_nobody_leaves() -> None:
    async def scene(crowd: Crowd, clients: list[FakeClient]) -> None:
        clients[0].idle_until = 0.0
        assert crowd.welcome()
        assert not clients[0].told

    in_crowd(scene, *(FakeClient() for _ in range(LIMITS.connections)))


def test_beyond_the_reserve_it_is_full() -> None:
    async def scene(crowd: Crowd, clients: list[FakeClient]) -> None:
        assert not crowd.is_full
        clients.append(FakeClient())
        assert crowd.is_full

    in_crowd(scene, *(FakeClient() for _ in range(LIMITS.connections + RESERVE)))


def test_the_oldest_body_that_is_not_complete_makes_room_for_others() -> None:
    async def scene(crowd: Crowd, clients: list[FakeClient]) -> None:
        complete, oldest, younger, newcomer = clients
        complete.sends(40)
        for client in (oldest, younger):
            client.transfer = Transfer(Stage.BODY, 0.0)
            crowd.watch(client)
            client.sends(30)
        newcomer.sends(20)
        assert [client.told for client in clients] == [[], ["give up"], [], []]
        newcomer.sends(60)  # another one does not suffice
        assert [client.told for client in clients[2:]] == [["give up"], ["give up"]]
        newcomer.sends(60)  # beside the one that is complete
        assert not complete.told

    in_crowd(scene, *(FakeClient() for _ in range(4)))
