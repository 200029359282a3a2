"""Who may be in memory: the pure half of capacity.

`make_room(wanted, residents, budget, now)` says whether a model may be loaded now, whom it
replaces, or how long to wait. The steward (`lifecycle.steward`) asks it and performs the answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from snoozeml.errors import OutOfMemory


class NeverFits(OutOfMemory):
    """A model is larger than all the memory that models may take: no eviction would help."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What all loaded models together may take.

    Attributes:
        models: how many models may be loaded.
        memory_bytes: what their workers may take together.
        free_bytes: what the machine or the cgroup has left at this moment; None where unknown.
    """

    models: int
    memory_bytes: int
    free_bytes: int | None


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A model that takes memory, or is about to.

    Attributes:
        memory_bytes: what its workers take; while they load or leave, what is expected of them.
        used_at: monotonic seconds of its last request.
        may_leave_at: monotonic seconds from which on it may be evicted; None: not as things are.
        leaving: it is on its way out; its memory will be free when its processes are gone.
    """

    model_id: str
    memory_bytes: int
    used_at: float
    may_leave_at: float | None
    leaving: bool = False


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is to be started.

    Attributes:
        expected_bytes: what it is expected to take.
        is_new: its model has no other worker yet, so that it counts as one more model.
    """

    model_id: str
    expected_bytes: int
    is_new: bool


class Admit(NamedTuple):
    """Load it now."""


class Evict(NamedTuple):
    """Ask these to leave, then look again when they are gone."""

    model_ids: tuple[str, ...]


class Wait(NamedTuple):
    """Nobody may leave now: look again when something changes, or at `until`.

    Attributes:
        until: monotonic seconds at which somebody will have served long enough; None: nobody will,
            unless something changes.
        for_memory: memory is short, rather than places.
    """

    until: float | None
    for_memory: bool


class TooLarge(NamedTuple):
    """It would not fit even alone."""

    limit_bytes: int


Decision = Admit | Evict | Wait | TooLarge


class _Shortage(NamedTuple):
    """What is missing before a start; nothing where neither figure is above 0."""

    places: int
    memory_bytes: int

    def without(self, resident: Resident) -> "_Shortage":
        """What is missing once this one has gone."""
        return _Shortage(self.places - 1, self.memory_bytes - resident.memory_bytes)

    @property
    def is_met(self) -> bool:
        return self.places <= 0 and self.memory_bytes <= 0


def make_room(
    wanted: Wanted, residents: Sequence[Resident], budget: Budget, now: float
) -> Decision:
    """Decide about one start.

    Victims are taken in the order of their last use, the longest unused first, and none in vain:
    where all that may leave would not be enough, nobody is asked to.

    INVARIANT: a victim may leave now, and is not the model that asks.
    """
    if wanted.expected_bytes > budget.memory_bytes:
        return TooLarge(budget.memory_bytes)
    others = [resident for resident in residents if resident.model_id != wanted.model_id]
    short = _shortage(wanted, residents, budget)
    if short.is_met:
        return Admit()
    for resident in others:
        if resident.leaving:
            short = short.without(resident)
    if short.is_met:
        return Wait(None, for_memory=False)
    victims: list[str] = []
    for resident in sorted(others, key=lambda resident: resident.used_at):
        if (
            not resident.leaving
            and resident.may_leave_at is not None
            and resident.may_leave_at <= now
        ):
            victims.append(resident.model_id)
            short = short.without(resident)
            if short.is_met:
                return Evict(tuple(victims))
    ripening = [
        r.may_leave_at for r in others if r.may_leave_at is not None and r.may_leave_at > now
    ]
    return Wait(min(ripening, default=None), for_memory=short.memory_bytes > 0)


def _shortage(wanted: Wanted, residents: Sequence[Resident], budget: Budget) -> _Shortage:
    taken = sum(resident.memory_bytes for resident in residents)
    over_budget = taken + wanted.expected_bytes - budget.memory_bytes
    if budget.free_bytes is not None:
        over_budget = max(over_budget, wanted.expected_bytes - budget.free_bytes)
    places = len(residents) + 1 - budget.models if wanted.is_new else 0
    return _Shortage(places, over_budget)
