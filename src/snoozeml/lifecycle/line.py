"""Who gets in before whom: the pure half of waiting for room."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from snoozeml.lifecycle.residency import (
    Admit,
    Budget,
    Decision,
    Evict,
    Holding,
    Resident,
    Wait,
    Wanted,
    make_room,
    room_at,
)


class Behind(NamedTuple):
    """There would be room, but one who came first needs it."""


class Look:
    """One look at all who wait, in the order in which they came.

    The first of them who may get in one day is not held up by those behind it. Whoever can get in
    only once somebody pinned leaves holds up nobody.

    INVARIANT: nobody gets in whose staying would make the first wait longer.
    """

    def __init__(self, budget: Budget, now: float) -> None:
        self._budget = budget
        self._now = now
        self._first: tuple[Wanted, set[str]] | None = None

    def decide(
        self, wanted: Wanted, passed: set[str], residents: Sequence[Resident]
    ) -> Decision | Behind:
        """Decide about the next in line.

        Args:
            passed: ids of the models that got in before it, though they came later; is added to.
        """
        decision = make_room(wanted, residents, self._budget, self._now)
        if self._first is None:
            if isinstance(decision, Evict) or (isinstance(decision, Wait) and not decision.in_vain):
                self._first = wanted, passed
            return decision
        if isinstance(decision, Admit | Evict):
            first, have_passed = self._first
            if self._holds_up(wanted, first, have_passed, residents):
                return Behind()
            have_passed.add(wanted.model_id)
        return decision

    def _holds_up(
        self, wanted: Wanted, first: Wanted, passed: set[str], residents: Sequence[Resident]
    ) -> bool:
        # Those who have passed it are taken to stay, too: else many small ones, each of them
        # harmless, could keep a large one out for ever.
        staying = [replace(r, stays=r.stays or r.model_id in passed) for r in residents]
        admitted = Resident(
            model_id=wanted.model_id,
            holds=Holding(wanted.needs, wanted.needs),
            used_at=self._now,
            may_leave_at=None,
            stays=True,
        )
        before = room_at(first, residents, self._budget, self._now)
        return room_at(first, [*staying, admitted], self._budget, self._now) != before
