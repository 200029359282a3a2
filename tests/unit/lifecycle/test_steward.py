"""Who gets room, and in which order: a steward among models that are only figures."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from snoozeml.errors import SnoozeError
from snoozeml.lifecycle.pools import Pools
from snoozeml.lifecycle.residency import RAM, Holding, Resident, Sizes, Wanted
from snoozeml.lifecycle.steward import NotWantedAnyMore, Steward
from unit.lifecycle.fake_accelerators import FakeAccelerators

MIB: Final = 2**20
LIMIT_MIB: Final = 600


class House:
    """A steward, and the models that are in memory."""

    def __init__(self, places: int = 8) -> None:
        self.models: dict[str, Model] = {}
        pools = Pools(memory_bytes=LIMIT_MIB * MIB, max_vram="90%", accelerators=FakeAccelerators())
        self.steward = Steward(self.models.values, models=places, pools=pools, loads_at_once=places)
        self._stack = AsyncExitStack()

    def holds(self, name: str, mib: int, **how: bool) -> "Model":
        """A model that is in memory; `pinned`, `busy`, or free to leave."""
        model = self.models[name] = Model(self, name, mib)
        model.claim({RAM: mib * MIB})
        model.busy = False
        for key, value in how.items():
            setattr(model, key, value)
        return model

    def asks(self, name: str, mib: int) -> "Model":
        """A model that is wanted, and waits for room from now on."""
        model = self.models[name] = Model(self, name, mib)
        model.load = asyncio.ensure_future(self._load(model))
        return model

    async def _load(self, model: "Model") -> None:
        async with self.steward.place(model):
            pass


class Model:
    """A tenant, and who applies for it."""

    def __init__(self, house: House, name: str, mib: int) -> None:
        self._house = house
        self._wanted = Wanted(model_id=name, needs={RAM: mib * MIB}, is_new=True)
        self._claimed: Sizes | None = None
        self.load: asyncio.Future[None] | None = None
        self.pinned = self.busy = False
        self.is_needed = True
        self.why: SnoozeError | None = None
        self.refused: SnoozeError | None = None

    @property
    def is_in(self) -> bool:
        return self._claimed is not None

    def change(self, **how: bool) -> None:
        for key, value in how.items():
            setattr(self, key, value)
        self._house.steward.look_again()

    # As the tenant

    def resident(self) -> Resident | None:
        if self._claimed is None:
            return None
        may_leave = not (self.pinned or self.busy)
        return Resident(
            model_id=self._wanted.model_id,
            holds=Holding(self._claimed, {}),
            used_at=0.0,
            may_leave_at=0.0 if may_leave else None,
            stays=self.pinned,
        )

    def evict(self, reason: str) -> None:
        self._claimed = None
        self._house.steward.look_again()

    # As the applicant

    def wanted(self) -> Wanted | None:
        return self._wanted if self.is_needed else None

    def wait_for_room(self, why: SnoozeError | None) -> None:
        self.why = why

    def refuse_loads(self, why: SnoozeError) -> None:
        self.refused = why

    def claim(self, needs: Sizes) -> None:
        self._claimed = needs
        self.busy = True  # it loads


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(5):
            await scene()

    asyncio.run(timed())


async def settle() -> None:
    """Give the steward time for all that it would do at once."""
    await asyncio.sleep(0.02)


def test_whoever_fits_beside_gets_in_past_one_for_whom_there_can_be_no_room() -> None:
    async def scene() -> None:
        house = House()
        house.holds("held", 419, pinned=True)
        big = house.asks("big", 320)
        await settle()
        small = [house.asks(f"small {n}", 13) for n in range(3)]
        await settle()
        assert all(model.is_in for model in small)
        assert not big.is_in
        house.models["held"].change(pinned=False)
        await settle()
        assert big.is_in

    play(scene)


def test_one_for_whom_there_can_be_no_room_keeps_nobody_from_evicting() -> None:
    async def scene() -> None:
        house = House(places=2)
        house.holds("held", 419, pinned=True)
        house.holds("idle", 13)
        house.asks("big", 320)
        await settle()
        small = house.asks("small", 13)
        await settle()
        assert small.is_in
        assert not house.models["idle"].is_in

    play(scene)


def test_whoever_fits_beside_one_that_waits_for_a_busy_neighbour_gets_in() -> None:
    async def scene() -> None:
        house = House()
        house.holds("busy", 419, busy=True)
        big = house.asks("big", 320)
        await settle()
        small = house.asks("small", 13)
        await settle()
        assert small.is_in
        assert not big.is_in

    play(scene)


def test_nobody_takes_the_room_that_one_who_came_first_waits_for() -> None:
    async def scene() -> None:
        house = House()
        neighbour = house.holds("busy", 300, busy=True)
        big = house.asks("big", 500)
        await settle()
        middle = house.asks("middle", 250)  # fits now, but not beside `big`
        await settle()
        assert not middle.is_in
        assert middle.why is not None
        assert "other models are waiting for room" in middle.why.message
        neighbour.change(busy=False)
        await settle()
        assert big.is_in
        assert not middle.is_in

    play(scene)


def test_many_small_ones_together_do_not_take_the_room_of_a_large_one_that_waits() -> None:
    async def scene() -> None:
        house = House()
        neighbour = house.holds("busy", 300, busy=True)
        big = house.asks("big", 500)
        await settle()
        small = [house.asks(f"small {n}", 40) for n in range(6)]
        await settle()
        assert [model.is_in for model in small] == [True, True] + [False] * 4
        neighbour.change(busy=False)
        await settle()
        assert big.is_in

    play(scene)


def test_whoever_had_no_chance_is_not_overtaken_once_it_has_one() -> None:
    async def scene() -> None:
        house = House()
        neighbour = house.holds("held", 300, pinned=True)
        big = house.asks("big", 500)
        await settle()
        neighbour.change(pinned=False, busy=True)
        middle = house.asks("middle", 250)
        await settle()
        assert not middle.is_in
        neighbour.change(busy=False)
        await settle()
        assert big.is_in

    play(scene)


def test_loads_are_refused_when_nobody_who_is_in_the_way_will_ever_leave() -> None:
    async def scene() -> None:
        house = House()
        neighbour = house.holds("busy", 419, busy=True)
        big = house.asks("big", 320)
        await settle()
        assert big.refused is None
        neighbour.change(pinned=True)
        await settle()
        assert big.refused is not None
        assert "none that is loaded may leave" in big.refused.message

    play(scene)


def test_whoever_is_not_wanted_any_more_leaves_the_line() -> None:
    async def scene() -> None:
        house = House()
        house.holds("held", 419, busy=True)
        big, other = house.asks("big", 320), house.asks("other", 320)
        await settle()
        big.change(is_needed=False)
        assert big.load is not None
        try:
            await big.load
        except NotWantedAnyMore:
            assert house.steward.is_waited_for
        else:
            raise AssertionError("it was let in")
        assert other.load is not None
        other.load.cancel()
        await settle()
        assert not house.steward.is_waited_for

    play(scene)


def test_looks_take_a_small_share_of_the_time_however_many_wait() -> None:
    async def scene() -> None:
        house = House()
        looks = 0
        held = house.holds("held", 600, busy=True)

        def counted() -> Resident | None:
            nonlocal looks
            looks += 1
            return Model.resident(held)

        held.resident = counted  # type: ignore[method-assign]
        for number in range(200):
            house.asks(f"waiting {number}", 13)
        await settle()
        looks, until = 0, asyncio.get_running_loop().time() + 0.2
        turns = 0
        while asyncio.get_running_loop().time() < until:
            house.steward.look_again()
            turns += 1
            await asyncio.sleep(0)
        assert 0 < looks < turns / 10

    play(scene)
