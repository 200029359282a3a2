"""Who may be in memory: the pure half of capacity.

`make_room(wanted, residents, budget, now)` says whether a model may be loaded now, whom it
replaces, or how long to wait. The steward (`lifecycle.steward`) asks it and performs the answer.

Memory is counted in as many columns as there are memories: the machine's, and that of each device
a model needs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from snoozeml.errors import OutOfMemory

RAM: Final = "ram"

Sizes = Mapping[str, int]
"""Bytes by the memory they are in: `ram`, or that of a device, such as `cuda:0`."""


class NeverFits(OutOfMemory):
    """A model is larger than all the memory that models may take: no eviction would help."""


class Pool(NamedTuple):
    """One memory.

    Attributes:
        limit_bytes: what all loaded models together may take of it.
        free_bytes: what is left of it at this moment, whoever takes the rest; None where unknown.
    """

    limit_bytes: int
    free_bytes: int | None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What all loaded models together may take.

    Attributes:
        models: how many models may be loaded.
        pools: the memories; what is needed of one that is not here is not counted.
    """

    models: int
    pools: Mapping[str, Pool]


class Holding(NamedTuple):
    """What a worker or a model holds.

    Attributes:
        takes: what it takes; while it loads or leaves, what is expected of it.
        untaken: how much of that it will still take of what counts as free now.
    """

    takes: Sizes
    untaken: Sizes


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A model that takes memory, or is about to.

    Attributes:
        holds: what its workers take.
        used_at: monotonic seconds of its last request.
        may_leave_at: monotonic seconds from which on it may be evicted; None: not as things are.
        leaving: it is on its way out; its memory will be free when its processes are gone.
        stays: it is pinned, and leaves for nobody.
    """

    model_id: str
    holds: Holding
    used_at: float
    may_leave_at: float | None
    leaving: bool = False
    stays: bool = False

    def may_leave(self, now: float) -> bool:
        return not self.leaving and self.may_leave_at is not None and self.may_leave_at <= now

    def gone_at(self, now: float) -> float:
        """When its room may be had, as far as that can be told; infinity: once it is not busy."""
        if self.leaving:
            return now
        return math.inf if self.may_leave_at is None else max(self.may_leave_at, now)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is to be started.

    Attributes:
        needs: what it is expected to take.
        is_new: its model has no other worker yet, so that it counts as one more model.
    """

    model_id: str
    needs: Sizes
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
        short_of: the memory that is short; None: it is places.
        in_vain: even if all left who are not pinned, there would not be room.
    """

    until: float | None
    short_of: str | None
    in_vain: bool = False


class TooLarge(NamedTuple):
    """It would not fit even alone.

    Attributes:
        memory: the one that is too small.
    """

    memory: str
    limit_bytes: int


Decision = Admit | Evict | Wait | TooLarge


class _Shortage(NamedTuple):
    """What is missing before a start: places, and bytes of each memory; all above 0."""

    places: int
    sizes: Sizes

    def without(self, resident: Resident) -> "_Shortage":
        """What is missing once this one has gone."""
        left = {
            where: lack - resident.holds.takes.get(where, 0) for where, lack in self.sizes.items()
        }
        return _Shortage(max(0, self.places - 1), _above_nothing(left))

    def is_eased_by(self, resident: Resident) -> bool:
        """Whether anything of it would be there if this one had gone."""
        return self.places > 0 or any(resident.holds.takes.get(where, 0) for where in self.sizes)

    @property
    def is_met(self) -> bool:
        return not self.places and not self.sizes


def make_room(
    wanted: Wanted, residents: Sequence[Resident], budget: Budget, now: float
) -> Decision:
    """Decide about one start.

    Victims are taken in the order of their last use, the longest unused first, and none in vain:
    where all that may leave would not be enough, nobody is asked to, and nobody is asked whose
    memory is not what is missing.

    INVARIANT: a victim may leave now, and is not the model that asks.
    """
    for where, pool in budget.pools.items():
        if wanted.needs.get(where, 0) > pool.limit_bytes:
            return TooLarge(where, pool.limit_bytes)
    others = [resident for resident in residents if resident.model_id != wanted.model_id]
    short = _shortage(wanted, residents, budget)
    if short.is_met:
        return Admit()
    for resident in others:
        if resident.leaving:
            short = short.without(resident)
    if short.is_met:
        return Wait(None, short_of=None)
    victims = _victims(short, [resident for resident in others if resident.may_leave(now)])
    if victims:
        return Evict(tuple(victim.model_id for victim in victims))
    ripening = [
        r.may_leave_at for r in others if r.may_leave_at is not None and r.may_leave_at > now
    ]
    return Wait(
        min(ripening, default=None),
        short_of=next(iter(short.sizes), None),
        in_vain=room_at(wanted, residents, budget, now) is None,
    )


def room_at(
    wanted: Wanted, residents: Iterable[Resident], budget: Budget, now: float
) -> float | None:
    """When there may be room for a start: monotonic seconds, `now` or later.

    Infinity: when somebody who is busy has finished. None: never, as long as those stay who do.
    """
    residents = list(residents)
    short, at = _shortage(wanted, residents, budget), now
    others = (resident for resident in residents if not resident.stays)
    for resident in sorted(others, key=lambda resident: resident.gone_at(now)):
        if short.is_met:
            break
        short, at = short.without(resident), resident.gone_at(now)
    return at if short.is_met else None


def neighbour_to_evict(needs: Sizes, neighbours: Iterable[Resident], now: float) -> Resident | None:
    """Whom to send away for a model that has run out of memory, of those that may leave now.

    The memory of a device is mostly what runs out for a model that needs some, so that whoever
    takes of it goes before others; of equals, the longest unused.
    """

    def last_to_go(resident: Resident) -> tuple[bool, float]:
        shares_device = any(resident.holds.takes.get(where, 0) for where in needs if where != RAM)
        return not shares_device, resident.used_at

    return min((r for r in neighbours if r.may_leave(now)), key=last_to_go, default=None)


def holding(claimed: Sizes, counted: Mapping[str, int | None]) -> Holding:
    """What one worker holds, or will.

    Weights that are mapped count before they have been read. They are not owed, though: until
    somebody else needs the room, the machine calls it free whether they have been read or not.

    Args:
        counted: what the kernel and the drivers count; None: they do not say, and it is taken to be
            what was claimed. What is not here has not been taken yet.
    """
    known = {w: claimed.get(w, 0) if size is None else size for w, size in counted.items()}
    takes = {w: max(claimed.get(w, 0), known.get(w, 0)) for w in {**claimed, **known}}
    untaken = {w: size - known.get(w, 0) for w, size in takes.items() if w != RAM}
    return Holding(takes, untaken)


def fitting(expected: Sizes, least: Sizes, limits: Sizes) -> dict[str, int]:
    """What to ask for: what is expected, but where there is less, all that there is.

    A worker that had more before may get along with that, if it is what it must have at `least`.
    """
    return {w: min(size, max(limits.get(w, size), least[w])) for w, size in expected.items()}


def total(sizes: Iterable[Sizes]) -> dict[str, int]:
    """The sums, memory by memory."""
    sums: dict[str, int] = {}
    for each in sizes:
        for where, size in each.items():
            sums[where] = sums.get(where, 0) + size
    return sums


def _victims(short: _Shortage, candidates: Iterable[Resident]) -> list[Resident]:
    """Those who must leave; nobody if that would not be enough."""
    victims: list[Resident] = []
    left = short
    for resident in sorted(candidates, key=lambda resident: resident.used_at):
        if left.is_eased_by(resident):
            victims.append(resident)
            left = left.without(resident)
        if left.is_met:
            return _needed(short, victims)
    return []


def _needed(short: _Shortage, victims: list[Resident]) -> list[Resident]:
    """Without those whose leaving has become superfluous by that of a larger one after them."""
    for spared in reversed(victims):
        left, others = short, [victim for victim in victims if victim is not spared]
        for victim in others:
            left = left.without(victim)
        if left.is_met:
            victims = others
    return victims


def _shortage(wanted: Wanted, residents: Sequence[Resident], budget: Budget) -> _Shortage:
    taken = total(resident.holds.takes for resident in residents)
    untaken = total(resident.holds.untaken for resident in residents)
    lacks: dict[str, int] = {}
    for where, need in wanted.needs.items():
        pool = budget.pools.get(where)
        if pool is None or not need:
            continue
        lacks[where] = taken.get(where, 0) + need - pool.limit_bytes
        if pool.free_bytes is not None:
            beyond_free = untaken.get(where, 0) + need - pool.free_bytes
            lacks[where] = max(lacks[where], beyond_free)
    places = len(residents) + 1 - budget.models if wanted.is_new else 0
    return _Shortage(max(0, places), _above_nothing(lacks))


def _above_nothing(sizes: Sizes) -> Sizes:
    return {where: size for where, size in sizes.items() if size > 0}
