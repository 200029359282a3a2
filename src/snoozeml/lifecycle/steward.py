"""Gives out room in memory: the thin half of capacity.

Whoever wants to start a worker asks for a place and waits its turn. `residency.make_room` decides;
the steward measures, asks victims to leave, and looks again when something has changed.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Protocol

from snoozeml.errors import OutOfMemory, Overloaded, SnoozeError
from snoozeml.lifecycle.pools import Pools, limit_name
from snoozeml.lifecycle.residency import (
    RAM,
    Admit,
    Budget,
    Decision,
    Evict,
    NeverFits,
    Resident,
    Sizes,
    TooLarge,
    Wait,
    Wanted,
    make_room,
    neighbour_to_evict,
    total,
)

_log = logging.getLogger("snoozeml.models")

_LOOK_AGAIN_S = 5.0

_LONG_LOAD_S = 5.0
"""A load that takes longer may hang, or be no matter of seconds; others go on beside it."""


class Tenant(Protocol):
    """A model, as the steward sees it."""

    def resident(self) -> Resident | None:
        """What it takes now; None while it takes nothing."""

    def evict(self, reason: str) -> None:
        """Leave if you may."""


class Applicant(Protocol):
    """Who wants to start a worker."""

    def wanted(self) -> Wanted | None:
        """What is to be started; None once nobody needs it any more."""

    def wait_for_room(self, why: SnoozeError | None) -> None:
        """There is no room at present, for this reason; None: there is."""

    def claim(self, needs: Sizes) -> None:
        """There is room: from now on this much counts as taken."""


class NotWantedAnyMore(Exception):
    """Whoever a load was for has left before there was room."""


class Steward:
    """The one who knows what all models take.

    Args:
        tenants: all models.
        models: how many may be loaded.
        pools: what they may take.
        loads_at_once: how many models may be loading at the same time.
    """

    def __init__(
        self,
        tenants: Callable[[], Iterable[Tenant]],
        *,
        models: int,
        pools: Pools,
        loads_at_once: int,
    ) -> None:
        self._tenants = tenants
        self._models = models
        self.pools = pools
        self._turn = asyncio.Lock()
        self._loads = asyncio.Semaphore(loads_at_once)
        self._changed = asyncio.Event()
        self._waiting = 0

    @property
    def is_waited_for(self) -> bool:
        """Somebody waits for room, or for the turn to ask."""
        return self._waiting > 0

    def look_again(self) -> None:
        """Something has changed that may make room, or that makes room unnecessary."""
        self._changed.set()

    @asynccontextmanager
    async def place(self, applicant: Applicant) -> AsyncIterator[None]:
        """Wait for room, then hold one of the few places for loading during the block.

        First come, first served: small models do not overtake a large one for ever. A replica of a
        model that is served already takes only what is free: it does not wait, and nobody has to
        leave for it.

        Raises:
            NeverFits: it is larger than all the memory that models may take.
            Overloaded: it is a replica, and there is no room.
            NotWantedAnyMore: the applicant said so.
        """
        wanted = applicant.wanted()
        if wanted is not None and not wanted.is_new:
            self._admit_replica(applicant, wanted)
        else:
            await self._wait_for_turn(applicant)
        async with self._place_to_load():
            yield

    @asynccontextmanager
    async def _place_to_load(self) -> AsyncIterator[None]:
        """One of the few; given back early where it is needed for long."""
        await self._loads.acquire()
        with ExitStack() as held:
            held.callback(self._loads.release)
            timer = asyncio.get_running_loop().call_later(_LONG_LOAD_S, held.close)
            held.callback(timer.cancel)
            yield

    def _admit_replica(self, applicant: Applicant, wanted: Wanted) -> None:
        if not isinstance(self._decide(wanted), Admit):
            raise Overloaded(f"there is no room for another replica of model {wanted.model_id}")
        applicant.claim(wanted.needs)

    async def _wait_for_turn(self, applicant: Applicant) -> None:
        if self._turn.locked():
            applicant.wait_for_room(Overloaded("other models are waiting for room, too"))
        self._waiting += 1
        try:
            async with self._turn:
                await self._until_admitted(applicant)
        finally:
            self._waiting -= 1
            applicant.wait_for_room(None)

    def _decide(self, wanted: Wanted) -> Decision:
        pools = {where: pool for where in wanted.needs if (pool := self.pools.pool(where))}
        budget = Budget(models=self._models, pools=pools)
        return make_room(wanted, self._residents(), budget, time.monotonic())

    async def _until_admitted(self, applicant: Applicant) -> None:
        is_told = False
        while (wanted := applicant.wanted()) is not None:
            self._changed.clear()
            match self._decide(wanted):
                case Admit():
                    applicant.claim(wanted.needs)
                    return
                case TooLarge(where, limit_bytes):
                    raise NeverFits(
                        f"out of memory: model {wanted.model_id} needs about "
                        f"{_mib(wanted.needs[where])}, more than the {_mib(limit_bytes)} that "
                        f"all models together may take ({limit_name(where)})"
                    )
                case Evict(model_ids):
                    applicant.wait_for_room(self._refusal(wanted, Wait(None, short_of=None)))
                    self._evict(model_ids, "capacity")
                    is_told = True  # by who leaves
                    await self._change(None)
                case Wait() as wait:
                    why = self._refusal(wanted, wait)
                    applicant.wait_for_room(why)
                    if not is_told:
                        fields = {"model": wanted.model_id, "why": why.message}
                        _log.info("waits for room", extra={"fields": fields})
                    is_told = True
                    await self._change(wait.until)
        raise NotWantedAnyMore

    async def _change(self, until: float | None) -> None:
        # What the rest of the machine does with its memory, nobody tells us.
        timeout_s = _LOOK_AGAIN_S
        if until is not None:
            timeout_s = min(timeout_s, max(0.0, until - time.monotonic()))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _evict(self, model_ids: tuple[str, ...], reason: str) -> None:
        for tenant in self._tenants():
            resident = tenant.resident()
            if resident is not None and resident.model_id in model_ids:
                tenant.evict(reason)

    def left_bytes(self) -> int:
        """What is left of the machine's memory that all models may take."""
        taken = total(resident.holds.takes for resident in self._residents())
        return self.pools.memory_bytes - taken.get(RAM, 0)

    def evict_one(self, but: str, needs: Sizes) -> None:
        """Memory has run out for a model: ask a neighbour to leave, if any may.

        Args:
            but: the model.
            needs: what it was expected to take.
        """
        neighbours = [resident for resident in self._residents() if resident.model_id != but]
        victim = neighbour_to_evict(needs, neighbours, time.monotonic())
        if victim is not None:
            self._evict((victim.model_id,), "oom")

    def _residents(self) -> list[Resident]:
        return [r for tenant in self._tenants() if (r := tenant.resident()) is not None]

    def _refusal(self, wanted: Wanted, wait: Wait) -> SnoozeError:
        now = time.monotonic()
        retry_after_s = None if wait.until is None else max(0.0, wait.until - now)
        until = ""
        if retry_after_s is not None:
            until = f"; one may in {retry_after_s:.1f} s (min_residency_secs)"
        if (where := wait.short_of) is not None:
            pool = self.pools.pool(where)
            limit = f"of the {_mib(pool.limit_bytes)} " if pool is not None else ""
            return OutOfMemory(
                f"out of memory: model {wanted.model_id} needs about {_mib(wanted.needs[where])} "
                f"{limit}that all models together may take ({limit_name(where)}), and none that is "
                f"loaded may leave at present{until}",
                retry_after_s=retry_after_s,
            )
        return Overloaded(
            f"model {wanted.model_id} waits for a place: {self._models} of {self._models} models "
            f"are loaded (max_loaded_models), and none may leave at present{until}",
            retry_after_s=retry_after_s,
        )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
