"""A process's own heap, as far as glibc lets one arrange it; elsewhere nothing happens.

The C library keeps what large bodies took, for the next ones. That is right while they come, and
wrong once they have ceased to.
"""

import ctypes
from collections.abc import Callable
from typing import Final

LARGE_BYTES: Final = 256 * 1024
"""Whoever has passed on so much at once should think of `trim`."""

QUIET_S: Final = 2.0
"""So long after the last large body, the next one is not expected any more."""

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h


def share() -> None:
    """Let all threads use one heap; call it before there is a second thread.

    Of a heap for each of them, `trim` could not give back the end, which is most of it.
    """
    if mallopt := _of_glibc("mallopt"):
        mallopt(_ARENA_MAX, 1)


def trim() -> None:
    """Give memory that is free back to the system.

    It takes milliseconds, and having none makes the next large body slower; so this is for the
    moment when a model has gone to sleep, or nothing large has come for `QUIET_S`.
    """
    if malloc_trim := _of_glibc("malloc_trim"):
        malloc_trim(0)


def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None)
