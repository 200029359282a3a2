"""One timer for the deadlines of many requests."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from snoozeml.lifecycle.alarm import Alarm

T = TypeVar("T")

_SMALL: Final = 256


class Due(Generic[T]):
    """A deadline of something, until that is settled.

    Attributes:
        at: monotonic seconds.
        owner: what is due; None once it is settled, so that nothing of it is kept here.
    """

    __slots__ = ("at", "owner", "timer")

    def __init__(self, at: float, owner: T) -> None:
        self.at = at
        self.owner: T | None = owner
        self.timer: asyncio.TimerHandle | None = None

    def settle(self) -> None:
        self.owner = None
        if self.timer is not None:
            self.timer.cancel()


class Deadlines(Generic[T]):
    """Calls `expire` for what is not settled by its deadline.

    Nearly all requests to a model have the same time limit, so their deadlines come in the order of
    their arrival, and a queue with one timer at its head serves them all. A timer for each would
    cost a twentieth of the daemon's time. What comes out of order gets a timer of its own.
    """

    def __init__(self, expire: Callable[[T], None]) -> None:
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Due[T]] = deque()
        self._alarm = Alarm(self._ring)
        self._compact_above = _SMALL

    def add(self, at: float, owner: T) -> Due[T]:
        """Watch over something; the caller settles what is returned."""
        queue = self._queue
        due = Due(at, owner)
        while queue and queue[0].owner is None:
            queue.popleft()
        if queue and at < queue[-1].at:
            due.timer = self._loop.call_at(at, self._ring_for, due)
            return due
        queue.append(due)
        if len(queue) > self._compact_above:
            self._compact()
        self._alarm.ring_by(at)
        return due

    def _compact(self) -> None:
        """Forget what is settled behind a head that takes its time."""
        self._queue = deque(due for due in self._queue if due.owner is not None)
        self._compact_above = max(_SMALL, 2 * len(self._queue))

    def _ring(self) -> None:
        now = self._loop.time()
        queue = self._queue
        while queue and (queue[0].owner is None or queue[0].at <= now):
            self._ring_for(queue.popleft())
        if queue:
            self._alarm.ring_by(queue[0].at)

    def _ring_for(self, due: Due[T]) -> None:
        if due.owner is not None:
            self._expire(due.owner)
