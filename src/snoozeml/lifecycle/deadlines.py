"""One timer for the deadlines of many requests."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar


class Due(Protocol):
    """Something that is over at its deadline unless it is settled before.

    Attributes:
        timer: set when it has a timer of its own, to be cancelled when it is settled.
    """

    settled: bool
    timer: asyncio.TimerHandle | None

    @property
    def deadline(self) -> float:
        """Monotonic seconds."""


T = TypeVar("T", bound=Due)

_SMALL: Final = 256


class Deadlines(Generic[T]):
    """Calls `expire` for what is not settled by its deadline.

    Nearly all requests to a model have the same time limit, so their deadlines come in the order of
    their arrival, and a queue with one timer at its head serves them all. A timer for each would
    cost a twentieth of the daemon's time. What comes out of order gets a timer of its own.
    """

    def __init__(self, expire: Callable[[T], None]) -> None:
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._queue: deque[T] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        self._compact_above = _SMALL

    def add(self, due: T) -> None:
        queue = self._queue
        while queue and queue[0].settled:
            queue.popleft()
        if queue and due.deadline < queue[-1].deadline:
            due.timer = self._loop.call_at(due.deadline, self._ring_for, due)
            return
        queue.append(due)
        if len(queue) > self._compact_above:
            self._compact()
        if due.deadline < self._rings_at:
            self._ring_at(due.deadline)

    def _compact(self) -> None:
        """Forget what is settled behind a head that takes its time."""
        self._queue = deque(due for due in self._queue if not due.settled)
        self._compact_above = max(_SMALL, 2 * len(self._queue))

    def _ring(self) -> None:
        # The head may have changed since the timer was set: it rings early, and is set again.
        self._rings_at = math.inf
        now = self._loop.time()
        queue = self._queue
        while queue and (queue[0].settled or queue[0].deadline <= now):
            self._ring_for(queue.popleft())
        if queue:
            self._ring_at(queue[0].deadline)

    def _ring_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = deadline
        self._timer = self._loop.call_at(deadline, self._ring)

    def _ring_for(self, due: T) -> None:
        if not due.settled:
            self._expire(due)
