"""Those who wait for a place in a worker's hands, in the order in which they will get one."""

from bisect import bisect_right
from collections import deque
from typing import Final, Protocol, TypeVar

DEFAULT_LEVEL: Final = 5
"""Of requests without a priority: others can ask to go before them, and to go after them."""

_FOREMOST: Final = 0
"""Before every level that a request can ask for."""


class Waiting(Protocol):
    """Somebody who waits; `level` is 1 for those who go first, and more for others."""

    level: int


T = TypeVar("T", bound=Waiting)


class Queue(deque[T]):
    """A queue by level, and within each level by arrival.

    INVARIANT: from left to right, no level is lower than the one before it.
    """

    def join(self, waiting: T) -> None:
        """Wait behind all others of the same level."""
        if not self or self[-1].level <= waiting.level:  # as it is where nobody has a priority
            self.append(waiting)
        else:
            self.insert(bisect_right(self, waiting.level, key=_level), waiting)

    def rejoin(self, waiting: T) -> None:
        """Wait before all others, having had a turn already."""
        waiting.level = _FOREMOST
        self.appendleft(waiting)

    def keep_order(self) -> None:
        """Let nobody who joins later go before those who are here."""
        for waiting in self:
            waiting.level = _FOREMOST


def _level(waiting: Waiting) -> int:
    return waiting.level
