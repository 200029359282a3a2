"""Waiting for what must become true, without guessing how long it takes."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE_S: Final = 20.0
"""Far more than anything here takes: it is only spent when a test fails."""

_PAUSE_S: Final = 0.01


def eventually(probe: Callable[[], T], what: str, *, within_s: float = PATIENCE_S) -> T:
    """The first true answer of `probe`.

    Raises:
        AssertionError: none came in time; the message says `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"not within {within_s:g} s: {what}; the last answer was {answer!r}"
            )
        time.sleep(_PAUSE_S)
    return answer
