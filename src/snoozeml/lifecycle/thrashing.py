"""Noticing models that push each other out of memory again and again."""

from collections import deque

WINDOW_S = 60.0
TOLERATED = 5


class Thrashing:
    """Counts the loads of one model that follow an eviction."""

    def __init__(self) -> None:
        self._loads: deque[float] = deque()

    def reloaded(self, now: float) -> bool:
        """Note a load of a model that had been evicted; whether there are too many of them.

        Args:
            now: monotonic seconds.
        """
        self._loads.append(now)
        while self._loads[0] < now - WINDOW_S:
            self._loads.popleft()
        return len(self._loads) > TOLERATED
