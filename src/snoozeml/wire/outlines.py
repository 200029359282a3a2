"""Messages that are like others but for some of their parts.

A client sends the same kind of request again and again. What has been found out about one of them
holds for the next one if it has the same bytes wherever one has to look.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_MOST: Final = 64
"""Outlines that are remembered; when there are more, all are forgotten."""

_LARGEST_BYTES: Final = 4096
"""Of an outline that is remembered, so that no client can fill the memory with them."""

_BEGINNING_BYTES: Final = 16  # names the model, in most messages


class _Outline(NamedTuple, Generic[T]):
    """What a message says outside of its parts, and what has been found out about it."""

    outside: list[tuple[slice, bytes]]
    found: T


class Outlines(Generic[T]):
    """Remembers one message for each length and beginning, once such a one has come twice."""

    def __init__(self) -> None:
        self._known: Final[dict[tuple[int, bytes], _Outline[T] | None]] = {}

    def find(self, message: bytes) -> T | None:
        """What was learned from a message that is like this one; None: none is known."""
        outline = self._known.get((len(message), message[:_BEGINNING_BYTES]))
        if outline is None:
            return None
        for where, wanted in outline.outside:
            if message[where] != wanted:
                return None
        return outline.found

    def learn(self, message: bytes, look: Callable[[], tuple[Sequence[slice], T] | None]) -> None:
        """Take note of a message that `find` did not know.

        Args:
            look: finds out which parts may be different, in the order in which they stand there,
                and what holds for all such messages; None: nothing does.
        """
        known, key = self._known, (len(message), message[:_BEGINNING_BYTES])
        if key not in known:
            if len(known) == _MOST:
                known.clear()
            known[key] = None  # what comes once is not worth the work
        elif known[key] is None and (seen := look()) is not None:
            parts, found = seen
            if len(message) - sum(part.stop - part.start for part in parts) <= _LARGEST_BYTES:
                known[key] = _Outline(_outside(message, parts), found)


def _outside(message: bytes, parts: Sequence[slice]) -> list[tuple[slice, bytes]]:
    edges = [0, *(edge for part in parts for edge in (part.start, part.stop)), len(message)]
    between = [slice(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]
    return [(where, message[where]) for where in between if where.start < where.stop]
