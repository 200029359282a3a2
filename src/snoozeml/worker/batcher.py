"""Which requests run next, together, and when. Pure: no clock is read, nothing is run."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

import msgspec

from snoozeml.wire.repeats import Decoded
from snoozeml.worker.limits import Limits
from snoozeml.worker.pacing import Group, Pace


class Pending(msgspec.Struct, gc=False):
    """A decoded request that has not run.

    Attributes:
        codec: dialect that the answer must be written in.
        arrived_at: monotonic seconds at which the daemon had it.
        deadline: monotonic seconds after which it must not run any more.
        inference: what it asks for.
        rows, batch_key, length: see `Measures`; of what is added to a batcher, rows are at least 1.
    """

    id: int
    codec: int
    arrived_at: float
    deadline: float
    inference: Decoded
    rows: int
    batch_key: Hashable | None
    length: int = 0


class Run(msgspec.Struct, gc=False):
    """Requests to be run together.

    Attributes:
        room: rows that would still fit, if they are not longer than these.
    """

    batch: list[Pending]
    rows: int
    room: int


class Wait(NamedTuple):
    """Nothing is to be run before `until`, in monotonic seconds, unless another request comes."""

    until: float


class Batcher:
    """Holds requests in one queue per batch key.

    Nobody starves: a queue is served in order of arrival, and among queues whose time has come the
    one whose first request is oldest goes first.

    Args:
        limits: of a batch; one row makes every request a batch of its own. A request beyond them
            is a batch of its own, too.
        pace: decides when a batch that is not full starts.

    Attributes:
        is_full: there is a batch that waits for nothing any more.
    """

    def __init__(self, limits: Limits, pace: Pace) -> None:
        self._limits = limits
        self._pace = pace
        self._queues: dict[Hashable, deque[Pending]] = {}
        self._nobody_late_before = float("inf")
        self._is_closing = False
        self.is_full = False

    @property
    def is_empty(self) -> bool:
        return not self._queues

    def add(self, request: Pending, backlog: int) -> None:
        """Queue a request; `backlog` more for this model are waiting in the daemon."""
        self._pace.arrived(request.arrived_at, backlog)
        key = request.id if request.batch_key is None else request.batch_key
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque((request,))
        else:
            queue.append(request)
        if request.deadline < self._nobody_late_before:
            self._nobody_late_before = request.deadline
        if len(queue) >= self._limits.rows:
            self.is_full = True

    def cancel(self, request_id: int) -> bool:
        """Forget a request; whether it was still here."""
        return bool(self._take_out(lambda request: request.id == request_id))

    def take_late(self, now: float) -> list[Pending]:
        """Take out and return the requests whose deadline has passed."""
        if now < self._nobody_late_before:
            return []
        late = self._take_out(lambda request: request.deadline <= now)
        deadlines = (request.deadline for queue in self._queues.values() for request in queue)
        self._nobody_late_before = min(deadlines, default=float("inf"))
        return late

    def next(self, now: float) -> Run | Wait | None:
        """What to do now; None: nothing is here. A batch that is returned to run is taken out."""
        self.is_full = False
        run_at = float("inf")
        for key, queue in self._oldest_first():
            run = self._first_run(queue)
            ready_at = self._ready_at(run, len(queue), now)
            if ready_at <= now:
                self._remove(key, queue, len(run.batch))
                return run
            run_at = min(run_at, ready_at)
        return Wait(run_at) if self._queues else None

    def answered(self, run: Run, started_at: float, now: float) -> None:
        """Report that a batch which began to run at `started_at` has just been answered."""
        self._pace.answered(len(run.batch), run.rows, started_at, now)

    def limit(self, limits: Limits) -> None:
        """From now on a batch keeps these limits, too; none is ever raised."""
        self._limits = self._limits.tightened(limits)

    def close(self) -> None:
        """No request will come any more: there is nothing to wait for."""
        self._is_closing = True

    def _oldest_first(self) -> Iterable[tuple[Hashable, deque[Pending]]]:
        if len(self._queues) < 2:
            return self._queues.items()
        return sorted(self._queues.items(), key=lambda item: item[1][0].arrived_at)

    def _first_run(self, queue: deque[Pending]) -> Run:
        batch: list[Pending] = []
        rows = length = 0
        for request in queue:
            longest = max(length, request.length)
            if batch and rows + request.rows > self._limits.rows_of(longest):
                break
            batch.append(request)
            rows += request.rows
            length = longest
        return Run(batch, rows, self._limits.rows_of(length) - rows)

    def _ready_at(self, run: Run, queued: int, now: float) -> float:
        batch = run.batch
        is_full = run.room <= 0 or len(batch) < queued
        if is_full or self._is_closing or batch[0].batch_key is None:
            return now
        is_all = len(self._queues) == 1
        group = Group(len(batch), run.rows, run.room, batch[0].arrived_at, is_all)
        return self._pace.run_at(group, now)

    def _remove(self, key: Hashable, queue: deque[Pending], requests: int) -> None:
        if requests == len(queue):
            del self._queues[key]
            return
        for _ in range(requests):
            queue.popleft()

    def _take_out(self, unwanted: Callable[[Pending], bool]) -> list[Pending]:
        taken = [r for queue in self._queues.values() for r in queue if unwanted(r)]
        if taken:
            kept = {k: deque(r for r in q if not unwanted(r)) for k, q in self._queues.items()}
            self._queues = {key: queue for key, queue in kept.items() if queue}
        return taken
