"""Which requests run next, together, and when. Pure: no clock is read, nothing is run."""

from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

import msgspec

from snoozeml.wire.tensors import Tensors
from snoozeml.worker.pacing import Group, Pace


class Pending(msgspec.Struct, gc=False):
    """A decoded request that has not run.

    Attributes:
        codec: dialect that the answer must be written in.
        arrived_at: monotonic seconds at which the daemon had it.
        deadline: monotonic seconds after which it must not run any more.
        rows: that it adds to a batch; at least 1.
        batch_key: equal for requests that may share a batch; None: it shares with nobody.
    """

    id: int
    codec: int
    arrived_at: float
    deadline: float
    inputs: Tensors
    outputs: tuple[str, ...]
    rows: int
    batch_key: Hashable | None


class Run(NamedTuple):
    batch: list[Pending]


class Wait(NamedTuple):
    """Nothing is to be run before `until`, in monotonic seconds, unless another request comes."""

    until: float


class Batcher:
    """Holds requests in one queue per batch key.

    Nobody starves: a queue is served in order of arrival, and among queues whose time has come the
    one whose first request is oldest goes first.

    Args:
        max_rows: rows in a full batch; 1 makes every request a batch of its own. A request with
            more rows than that is a batch of its own, too.
        pace: decides when a batch that is not full starts.
    """

    def __init__(self, max_rows: int, pace: Pace) -> None:
        self._max_rows = max_rows
        self._pace = pace
        self._queues: dict[Hashable, deque[Pending]] = {}
        self._is_closing = False

    @property
    def is_empty(self) -> bool:
        return not self._queues

    def add(self, request: Pending, backlog: int) -> None:
        """Queue a request; `backlog` more for this model are waiting in the daemon."""
        self._pace.arrived(request.arrived_at, backlog)
        key = request.id if request.batch_key is None else request.batch_key
        self._queues.setdefault(key, deque()).append(request)

    def cancel(self, request_id: int) -> None:
        """Forget a request if it is still here."""
        self._take_out(lambda request: request.id == request_id)

    def take_late(self, now: float) -> list[Pending]:
        """Take out and return the requests whose deadline has passed."""
        return self._take_out(lambda request: request.deadline <= now)

    def next(self, now: float) -> Run | Wait | None:
        """What to do now; None: nothing is here. A batch that is returned to run is taken out."""
        run_at = float("inf")
        for key, queue in sorted(self._queues.items(), key=lambda item: item[1][0].arrived_at):
            batch = self._first_batch(queue)
            ready_at = self._ready_at(batch, len(queue), now)
            if ready_at <= now:
                self._remove(key, len(batch))
                return Run(batch)
            run_at = min(run_at, ready_at)
        return Wait(run_at) if self._queues else None

    def answered(self, batch: list[Pending], started_at: float, now: float) -> None:
        """Report that a batch which began to run at `started_at` has just been answered."""
        self._pace.answered(len(batch), sum(r.rows for r in batch), started_at, now)

    def stop_merging(self) -> None:
        """From now on every request is a batch of its own."""
        self._max_rows = 1

    def close(self) -> None:
        """No request will come any more: there is nothing to wait for."""
        self._is_closing = True

    def _first_batch(self, queue: deque[Pending]) -> list[Pending]:
        rows = 0
        batch: list[Pending] = []
        for request in queue:
            rows += request.rows
            if batch and rows > self._max_rows:
                break
            batch.append(request)
        return batch

    def _ready_at(self, batch: list[Pending], queued: int, now: float) -> float:
        rows = sum(request.rows for request in batch)
        is_full = rows >= self._max_rows or len(batch) < queued
        if is_full or self._is_closing or batch[0].batch_key is None:
            return now
        group = Group(len(batch), rows, batch[0].arrived_at, is_all=len(self._queues) == 1)
        return self._pace.run_at(group, now)

    def _remove(self, key: Hashable, requests: int) -> None:
        queue = self._queues[key]
        for _ in range(requests):
            queue.popleft()
        if not queue:
            del self._queues[key]

    def _take_out(self, unwanted: Callable[[Pending], bool]) -> list[Pending]:
        taken = [r for queue in self._queues.values() for r in queue if unwanted(r)]
        if taken:
            kept = {k: deque(r for r in q if not unwanted(r)) for k, q in self._queues.items()}
            self._queues = {key: queue for key, queue in kept.items() if queue}
        return taken
