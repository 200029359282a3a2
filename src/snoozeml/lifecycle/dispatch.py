"""The way of requests through the daemon: waiting, in flight, answered."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from snoozeml.core.plan import WorkerFailure
from snoozeml.core.request import InferenceRequest, InferenceResult
from snoozeml.errors import (
    Cancelled,
    DeadlineExceeded,
    Overloaded,
    SnoozeError,
    WorkerCrashed,
    from_code,
)
from snoozeml.lifecycle.deadlines import Deadlines
from snoozeml.wire.frames import Frame, Kind

# A request that was in flight when a worker died is tried on one more worker. Inference has no side
# effects, so that is safe; at the second death the request itself is suspected.
_DEATHS_TOLERATED = 1

# Weight of the newest run in the estimate of the time that one row takes.
_NEWEST_WEIGHT = 0.1


class Outlet(Protocol):
    """Where frames for one worker go: a `Channel`, or a list in tests."""

    def send(
        self,
        kind: Kind,
        body: Sequence[bytes] = (),
        *,
        codec: int = 0,
        count: int = 0,
        id: int = 0,
        t0: float = 0.0,
        t1: float = 0.0,
    ) -> None: ...


class Ticket:
    """One request's place in the daemon until it is answered.

    Attributes:
        answer: resolves to an `InferenceResult`, or raises a `SnoozeError`.
        settled: it has been answered or withdrawn, and counts no more.
        woke_model: this request found the model asleep and caused the load.
    """

    __slots__ = (
        "answer", "deaths", "dispatch", "id", "request", "settled", "timer", "woke_model",
    )  # fmt: skip

    def __init__(self, id: int, request: InferenceRequest, dispatch: "Dispatch") -> None:
        self.id = id
        self.request = request
        self.dispatch = dispatch
        self.deaths = 0
        self.settled = False
        self.woke_model = False
        self.timer: asyncio.TimerHandle | None = None
        # Asking for the running loop costs a system call, so the dispatch remembers it.
        self.answer: asyncio.Future[InferenceResult] = dispatch.loop.create_future()

    @property
    def deadline(self) -> float:
        return self.request.deadline

    def abandon(self) -> None:
        """Nobody wants the answer any more: leave the queue, and fail `answer` as cancelled."""
        self.dispatch.withdraw(self, Cancelled("the caller left before the answer was there"))


class Lane:
    """The requests that one worker holds.

    Args:
        window: how many requests the worker may hold; about two batches, so that the next one is
            there when a run ends, and the rest stay where a deadline can still reach them.
    """

    def __init__(self, outlet: Outlet, window: int) -> None:
        self.outlet = outlet
        self.window = window
        self.in_flight: dict[int, Ticket] = {}

    def has_room(self) -> bool:
        return len(self.in_flight) < self.window

    def send(self, ticket: Ticket, backlog: int) -> None:
        request = ticket.request
        self.in_flight[ticket.id] = ticket
        self.outlet.send(
            Kind.INFER,
            request.body,
            codec=request.codec,
            count=backlog,
            id=ticket.id,
            t0=request.arrived_at,
            t1=request.deadline,
        )


class Dispatch:
    """The queue of one model, and its way to the worker.

    Args:
        max_queue: requests that may wait for a place in the worker's window.
        on_work_arrived: called when the first request arrives after there was none.
        on_work_finished: called when the last request has been answered or withdrawn.
        on_drained: called after `drain()`, when the worker has nothing left to do.
    """

    def __init__(
        self,
        max_queue: int,
        *,
        on_work_arrived: Callable[[], None],
        on_work_finished: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        self.max_queue = max_queue
        self.loop = asyncio.get_running_loop()
        self.row_s = 0.0
        self._on_work_arrived = on_work_arrived
        self._on_work_finished = on_work_finished
        self._on_drained = on_drained
        self._deadlines = Deadlines[Ticket](self.expire)
        self._queue: deque[Ticket] = deque()
        self._outstanding = 0
        self._next_id = 1
        self._lane: Lane | None = None
        self._drain_up_to: int | None = None

    @property
    def queue_depth(self) -> int:
        return len(self._queue)

    @property
    def outstanding(self) -> int:
        """Requests accepted and not yet answered: queued and in flight."""
        return self._outstanding

    def submit(self, request: InferenceRequest) -> Ticket:
        """Accept a request.

        Raises:
            Overloaded: the queue is full.
        """
        if len(self._queue) >= self.max_queue:
            raise Overloaded(
                f"the queue of model {request.model_id} is full: {self.max_queue} requests wait "
                "already (max_queue)",
                retry_after_s=self.row_s * len(self._queue),
            )
        ticket = Ticket(self._next_id, request, self)
        self._next_id += 1
        self._deadlines.add(ticket)
        self._queue.append(ticket)
        self._outstanding += 1
        if self._outstanding == 1:
            self._on_work_arrived()
        self._flow()
        return ticket

    def open(self, lane: Lane) -> None:
        """Let requests flow to this worker."""
        self._lane = lane
        self._flow()

    def drain(self) -> None:
        """Let only what has been accepted until now flow, then call `on_drained`."""
        self._drain_up_to = self._next_id - 1
        self._flow()
        self._check_drained()

    def close(self) -> None:
        """Keep requests in the queue; those that the worker still held will be tried again."""
        lane, self._lane, self._drain_up_to = self._lane, None, None
        if lane is not None:
            self._take_back(lane)

    def refuse(self, error: SnoozeError) -> None:
        """Answer everything that waits with this error."""
        while self._queue:
            self._fail(self._queue.popleft(), error)

    def receive(self, frame: Frame) -> None:
        """Hand a worker's answer to whoever waits; what nobody waits for any more is dropped."""
        ticket = self._lane.in_flight.pop(frame.id, None) if self._lane else None
        if ticket is None:
            return
        if frame.kind == Kind.RESULT:
            self.row_s += _NEWEST_WEIGHT * (frame.t1 / max(frame.count, 1) - self.row_s)
            if not ticket.answer.done():  # its waiter may have been cancelled this very moment
                ticket.answer.set_result(InferenceResult(frame.body, frame.count, frame.t0))
            self._settle(ticket)
        else:
            failure = msgspec.json.decode(frame.body, type=WorkerFailure)
            self._fail(ticket, from_code(failure.code, failure.message))

    def flow(self) -> None:
        """Fill the worker's window; call after a round of `receive`."""
        self._flow()
        if self._drain_up_to is not None:
            self._check_drained()

    def expire(self, ticket: Ticket) -> None:
        request = ticket.request
        waited_s = request.deadline - request.arrived_at
        self.withdraw(
            ticket, DeadlineExceeded(f"no answer within {waited_s:.3g} s, the request's time limit")
        )

    def withdraw(self, ticket: Ticket, error: SnoozeError) -> None:
        """Take a request out, wherever it is, and fail its answer."""
        if ticket.settled:
            return
        if self._lane is not None and self._lane.in_flight.pop(ticket.id, None) is not None:
            self._lane.outlet.send(Kind.CANCEL, id=ticket.id)
        else:
            self._queue.remove(ticket)
        self._fail(ticket, error)
        self.flow()

    def _flow(self) -> None:
        lane, queue = self._lane, self._queue
        if lane is None:
            return
        while queue and lane.has_room():
            if self._drain_up_to is not None and queue[0].id > self._drain_up_to:
                return
            ticket = queue.popleft()
            lane.send(ticket, len(queue))

    def _check_drained(self) -> None:
        lane = self._lane
        waiting = self._queue and self._queue[0].id <= (self._drain_up_to or 0)
        if lane is not None and not lane.in_flight and not waiting:
            self._on_drained()

    def _take_back(self, lane: Lane) -> None:
        for ticket in reversed(lane.in_flight.values()):
            ticket.deaths += 1
            if ticket.deaths > _DEATHS_TOLERATED:
                self._fail(
                    ticket,
                    WorkerCrashed("the worker process died twice while it held this request"),
                )
            else:
                self._queue.appendleft(ticket)
        lane.in_flight.clear()

    def _fail(self, ticket: Ticket, error: SnoozeError) -> None:
        if not ticket.answer.done():
            ticket.answer.set_exception(error)
            ticket.answer.exception()  # its waiter may be gone: no "never retrieved" in the log
        self._settle(ticket)

    def _settle(self, ticket: Ticket) -> None:
        ticket.settled = True
        if ticket.timer is not None:
            ticket.timer.cancel()
        self._outstanding -= 1
        if not self._outstanding:
            self._on_work_finished()
