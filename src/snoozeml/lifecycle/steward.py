"""Gives out room in memory: the thin half of capacity.

Whoever wants to start a worker asks for a place and waits in line. `residency` decides; the steward
measures, asks victims to leave, and looks at the whole line again when something has changed.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from snoozeml.errors import OutOfMemory, Overloaded, SnoozeError
from snoozeml.lifecycle.line import Behind, Look
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

_LOOK_AGAIN_S: Final = 5.0  # what the rest of the machine does with its memory, nobody tells us

_REST: Final = 4
"""How many times what a look has taken must pass before the next: with hundreds in line, looking at
every change would leave the daemon no time for anything else."""

_LONG_LOAD_S: Final = 5.0
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

    def refuse_loads(self, why: SnoozeError) -> None:
        """Waiting is in vain unless somebody changes something: tell those who can do that."""

    def claim(self, needs: Sizes) -> None:
        """There is room: from now on this much counts as taken."""


class NotWantedAnyMore(Exception):
    """Whoever a load was for has left before there was room."""


@dataclass(eq=False)
class _InLine:
    """One who waits for room.

    Attributes:
        answer: None when it is let in, else why it never will be.
        passed: ids of the models that have been let in before it, though they came later.
    """

    applicant: Applicant
    answer: asyncio.Future[Exception | None]
    passed: set[str] = field(default_factory=set)
    is_told: bool = False


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
        self._loads = asyncio.Semaphore(loads_at_once)
        self._line: list[_InLine] = []
        self._next_look: asyncio.TimerHandle | None = None
        self._next_look_at = 0.0
        self._rested_at = 0.0

    @property
    def is_waited_for(self) -> bool:
        """Somebody waits for room."""
        return bool(self._line)

    def look_again(self) -> None:
        """Something has changed that may make room, or that makes room unnecessary."""
        if self._line:
            self._look_at(self._rested_at)

    @asynccontextmanager
    async def place(self, applicant: Applicant) -> AsyncIterator[None]:
        """Wait for room, then hold one of the few places for loading during the block.

        First come, first served, but whoever fits beside the first who has a chance need not wait
        for it. A replica of a model that is served already takes only what is free: it does not
        wait, and nobody has to leave for it.

        Raises:
            NeverFits: it is larger than all the memory that models may take.
            Overloaded: it is a replica, and there is no room.
            NotWantedAnyMore: the applicant said so.
        """
        wanted = applicant.wanted()
        if wanted is not None and not wanted.is_new:
            self._admit_replica(applicant, wanted)
        else:
            await self._wait_for_room(applicant)
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
        budget = self._budget([wanted])
        if make_room(wanted, self._residents(), budget, time.monotonic()) != Admit():
            raise Overloaded(f"there is no room for another replica of model {wanted.model_id}")
        applicant.claim(wanted.needs)

    async def _wait_for_room(self, applicant: Applicant) -> None:
        place = _InLine(applicant, asyncio.get_running_loop().create_future())
        self._line.append(place)
        self.look_again()
        try:
            if (error := await place.answer) is not None:
                raise error
        finally:
            self._line.remove(place)
            applicant.wait_for_room(None)
            self.look_again()  # others may have waited for this one

    def _look_at(self, when: float) -> None:
        if self._next_look is not None:
            if self._next_look_at <= when:
                return
            self._next_look.cancel()
        self._next_look_at = when
        delay_s = max(0.0, when - time.monotonic())
        self._next_look = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._next_look = None
        started = time.monotonic()
        try:
            until = self._let_in(started)
        except Exception as error:  # a mistake of ours; nobody shall wait for ever because of it
            for place in self._waiting():
                place.answer.set_result(error)
            return
        ended = time.monotonic()
        self._rested_at = ended + _REST * (ended - started)
        if self._waiting():
            self._look_at(max(until, self._rested_at))

    def _waiting(self) -> list[_InLine]:
        return [place for place in self._line if not place.answer.done()]

    def _let_in(self, now: float) -> float:
        """Look at everybody in line, in order.

        Returns:
            monotonic seconds at which to look again if nothing changes before.
        """
        until, wishes = now + _LOOK_AGAIN_S, self._wishes()
        budget, residents = self._budget(wanted for _, wanted in wishes), self._residents()
        look = Look(budget, now)
        for place, wanted in wishes:
            decision = look.decide(wanted, place.passed, residents)
            self._carry_out(decision, place, wanted, budget)
            if isinstance(decision, Admit | Evict):
                residents = self._residents()
            elif isinstance(decision, Wait) and decision.until is not None:
                until = min(until, decision.until)
        return until

    def _wishes(self) -> list[tuple[_InLine, Wanted]]:
        """What everybody in line wants; whoever is not needed any more has to go."""
        wishes = []
        for place in self._waiting():
            if (wanted := place.applicant.wanted()) is None:
                place.answer.set_result(NotWantedAnyMore())
            else:
                wishes.append((place, wanted))
        return wishes

    def _carry_out(
        self, decision: Decision | Behind, place: _InLine, wanted: Wanted, budget: Budget
    ) -> None:
        applicant = place.applicant
        match decision:
            case Admit():
                applicant.claim(wanted.needs)
                place.answer.set_result(None)
            case TooLarge(where, limit_bytes):
                place.answer.set_result(_never_fits(wanted, where, limit_bytes))
            case Evict(model_ids):
                applicant.wait_for_room(_refusal(wanted, Wait(None, short_of=None), budget))
                self._evict(model_ids, "capacity")
                place.is_told = True  # by who leaves
            case Wait() as wait:
                why = _refusal(wanted, wait, budget)
                applicant.wait_for_room(why)
                if not place.is_told:
                    fields = {"model": wanted.model_id, "why": why.message}
                    _log.info("waits for room", extra={"fields": fields})
                place.is_told = True
                if wait.in_vain:
                    applicant.refuse_loads(why)
            case Behind():
                why = Overloaded("other models are waiting for room, too")
                applicant.wait_for_room(why)

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

    def _budget(self, wishes: Iterable[Wanted]) -> Budget:
        wheres = {where for wanted in wishes for where in wanted.needs}
        pools = {where: pool for where in wheres if (pool := self.pools.pool(where))}
        return Budget(models=self._models, pools=pools)

    def _residents(self) -> list[Resident]:
        return [r for tenant in self._tenants() if (r := tenant.resident()) is not None]


def _refusal(wanted: Wanted, wait: Wait, budget: Budget) -> SnoozeError:
    now = time.monotonic()
    retry_after_s = None if wait.until is None else max(0.0, wait.until - now)
    until = ""
    if retry_after_s is not None:
        until = f"; one may in {retry_after_s:.1f} s (min_residency_secs)"
    if (where := wait.short_of) is not None:
        return OutOfMemory(
            f"out of memory: model {wanted.model_id} needs about {_mib(wanted.needs[where])} of "
            f"the {_mib(budget.pools[where].limit_bytes)} that all models together may take "
            f"({limit_name(where)}), and none that is loaded may leave at present{until}",
            retry_after_s=retry_after_s,
        )
    return Overloaded(
        f"model {wanted.model_id} waits for a place: {budget.models} of {budget.models} models are "
        f"loaded (max_loaded_models), and none may leave at present{until}",
        retry_after_s=retry_after_s,
    )


def _never_fits(wanted: Wanted, where: str, limit_bytes: int) -> NeverFits:
    return NeverFits(
        f"out of memory: model {wanted.model_id} needs about {_mib(wanted.needs[where])}, more "
        f"than the {_mib(limit_bytes)} that all models together may take ({limit_name(where)})"
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
