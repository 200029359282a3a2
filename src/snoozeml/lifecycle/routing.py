"""Which replica gets the next request."""

import random
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

Strategy = Literal["least_queue", "round_robin", "random"]


class Holder(Protocol):
    """What routing looks at."""

    @property
    def number(self) -> int:
        """Replicas are numbered in the order of their start."""

    @property
    def held(self) -> int:
        """Requests that the replica holds."""


Choose = Callable[[Sequence[Holder]], int]
"""Takes the replicas that have room, oldest first, at least one; returns an index."""


def _least_queue(holders: Sequence[Holder]) -> int:
    """The replica that holds least; of equals the oldest, so that the others can fall idle."""
    return min(range(len(holders)), key=lambda index: holders[index].held)


def _random(holders: Sequence[Holder]) -> int:
    return random.randrange(len(holders))  # noqa: S311  no secret depends on it


class _RoundRobin:
    def __init__(self) -> None:
        self._last = 0

    def __call__(self, holders: Sequence[Holder]) -> int:
        """The replica after the one that was chosen last, by number."""
        later = (i for i, holder in enumerate(holders) if holder.number > self._last)
        index = next(later, 0)
        self._last = holders[index].number
        return index


_MAKE: Final[dict[Strategy, Callable[[], Choose]]] = {
    "least_queue": lambda: _least_queue,
    "round_robin": _RoundRobin,
    "random": lambda: _random,
}


def routing(strategy: Strategy) -> Choose:
    return _MAKE[strategy]()
