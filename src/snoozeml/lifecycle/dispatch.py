"""The way of requests through the daemon: waiting, in flight, answered."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from snoozeml.core.plan import WorkerFailure
from snoozeml.core.request import InferenceRequest, InferenceResult
from snoozeml.errors import (
    Cancelled,
    DeadlineExceeded,
    OutOfMemory,
    Overloaded,
    SnoozeError,
    WorkerCrashed,
    from_code,
)
from snoozeml.lifecycle.deadlines import Deadlines
from snoozeml.lifecycle.quarantine import Quarantine
from snoozeml.lifecycle.queue import DEFAULT_LEVEL, Queue
from snoozeml.lifecycle.routing import Choose
from snoozeml.wire.frames import Frame, Kind

_log = logging.getLogger("snoozeml.model")

# A request that was in flight when a worker died is tried on one more worker, alone. Inference has
# no side effects, so that is safe; at the second death the request itself is the cause.
_BLAMES_TOLERATED = 1

# Weight of the newest run in the estimate of the time that one row takes.
_NEWEST_WEIGHT = 0.1

# To look them up in their class takes as long as to compare them.
_INFER = Kind.INFER
_RESULT = Kind.RESULT


Outcome = InferenceResult | SnoozeError


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
        level: see `Queue`.
        found: what has become of it; None: it waits, or is under way.
        woke_model: this request found the model asleep and caused the load.
    """

    __slots__ = (
        "_hear", "_waiting", "blamed", "dispatch", "due", "found", "id", "level", "request",
        "woke_model",
    )  # fmt: skip

    def __init__(self, id: int, request: InferenceRequest, dispatch: "Dispatch") -> None:
        self.id = id
        self.request = request
        self.level = request.priority or DEFAULT_LEVEL
        self.dispatch = dispatch
        self.blamed = 0
        self.woke_model = False
        self.due = dispatch.deadlines.add(request.deadline, self)
        self.found: Outcome | None = None
        self._hear: Callable[[Outcome], None] | None = None
        self._waiting: asyncio.Future[None] | None = None

    async def outcome(self) -> InferenceResult:
        """Wait for the answer; cancelling this abandons the request.

        Raises:
            SnoozeError: why there is none.
        """
        if self.found is None:
            # Asking for the running loop costs a system call, so the dispatch remembers it.
            self._waiting = self.dispatch.loop.create_future()
            try:
                await self._waiting
            except asyncio.CancelledError:
                self.abandon()
                raise
        found = self.found
        assert found is not None
        if isinstance(found, SnoozeError):
            raise found.again()
        return found

    def tell(self, hear: Callable[[Outcome], None]) -> None:
        """Call this with what becomes of the request, at once or as soon as that is known.

        It saves those without a coroutine a future, and a turn of the loop. It must not raise.
        """
        if self.found is not None:
            hear(self.found)
        else:
            self._hear = hear

    def settle(self, found: Outcome) -> None:
        """It has been answered or withdrawn; only the dispatch says so."""
        self.found = found
        self.due.settle()
        if self._hear is not None:
            self._hear(found)
        elif self._waiting is not None and not self._waiting.done():  # it may have been cancelled
            self._waiting.set_result(None)

    def abandon(self) -> None:
        """Nobody wants the answer any more: leave the queue, and fail as cancelled."""
        self.dispatch.withdraw(self, Cancelled("the caller left before the answer was there"))


class Lane:
    """The requests that one worker holds.

    Args:
        window: how many requests the worker may hold; about two batches, so that the next one is
            there when a run ends, and the rest stay where a deadline can still reach them.

    Attributes:
        takes_up_to: number of the last request that the worker still takes; None: there is no last.
        in_flight: those that somebody waits for, by number.
        owed: numbers of all that the worker has not answered, those that were withdrawn included.
        answered: how many requests the worker has answered.
        moved_at: monotonic seconds of the last sign of progress: an answer, or the first request
            into empty hands.
    """

    def __init__(self, number: int, outlet: Outlet, window: int) -> None:
        self.number = number
        self.outlet = outlet
        self.window = window
        self.in_flight: dict[int, Ticket] = {}
        self.owed: set[int] = set()
        self.takes_up_to: int | None = None
        self.answered = 0
        self.moved_at = 0.0
        self._holds_suspect = False

    @property
    def held(self) -> int:
        return len(self.owed)

    def takes(self, ticket: Ticket) -> bool:
        """Whether the worker may get this request now.

        A request that is suspected of having killed a worker runs alone: if it kills another one,
        no innocent one is blamed with it.
        """
        if self.takes_up_to is not None and ticket.id > self.takes_up_to:
            return False
        if not self.owed:
            return True
        alone = self._holds_suspect or ticket.blamed
        return not alone and len(self.owed) < self.window

    def send(self, ticket: Ticket, backlog: int) -> None:
        request = ticket.request
        if not self.owed:
            self.moved_at = time.monotonic()
        self.owed.add(ticket.id)
        self.in_flight[ticket.id] = ticket
        self._holds_suspect = ticket.blamed > 0
        self.outlet.send(
            _INFER,
            request.body,
            codec=request.codec,
            count=backlog,
            id=ticket.id,
            t0=request.arrived_at,
            t1=request.deadline,
        )


class Reports(Protocol):
    """Who hears what becomes of the queue."""

    def answered(self, ticket: Ticket, result: InferenceResult) -> None:
        """A request has its answer, which may still be added to."""

    def failed(self, ticket: Ticket) -> None:
        """A request has been refused or withdrawn after it had been accepted."""

    def work_arrived(self) -> None:
        """The first request came after there was none."""

    def work_finished(self) -> None:
        """The last request has been answered or withdrawn."""

    def crowded(self) -> None:
        """More requests wait than the threshold says."""

    def ran_out_of_memory(self, number: int) -> None:
        """A worker could not run a request for lack of memory."""

    def drained(self, number: int) -> None:
        """A lane that was told to drain is empty."""


class Dispatch:
    """The queue of one model, and its ways to the workers.

    Args:
        max_queue: requests that may wait for a place in a worker's window.
        crowd: requests that may wait before `Reports.crowded` is called.
        choose: picks the worker for a request.

    Attributes:
        needed_at: monotonic seconds at which there was last more work than one worker less would
            have held.
        blocked_by: why nothing can flow at present, where that is known; a request whose time runs
            out meanwhile is told this rather than that its time ran out.
    """

    def __init__(self, reports: Reports, *, max_queue: int, crowd: int, choose: Choose) -> None:
        self.max_queue = max_queue
        self.crowd = crowd
        self.choose = choose
        self.loop = asyncio.get_running_loop()
        self.row_s = 0.0
        self.needed_at = 0.0
        self.blocked_by: SnoozeError | None = None
        self._reports = reports
        self._quarantine = Quarantine()
        self.deadlines = Deadlines[Ticket](self.expire)
        self._queue = Queue[Ticket]()
        self._outstanding = 0
        self._next_id = 1
        self._lanes: dict[int, Lane] = {}

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
            WorkerCrashed: a request just like this one has killed two workers.
        """
        if self._quarantine.holds(request.body):
            raise WorkerCrashed(
                f"this request has crashed workers of model {request.model_id}; it is refused for "
                "a while"
            )
        if len(self._queue) >= self.max_queue:
            raise Overloaded(
                f"the queue of model {request.model_id} is full: {self.max_queue} requests wait "
                "already (max_queue)",
                retry_after_s=self.row_s * len(self._queue),
            )
        ticket = Ticket(self._next_id, request, self)
        self._next_id += 1
        self._queue.join(ticket)
        self._outstanding += 1
        if self._outstanding == 1:
            self._reports.work_arrived()
        self._flow()
        if len(self._lanes) > 1:
            self._note_need(request.arrived_at)
        if len(self._queue) > self.crowd:
            self._reports.crowded()
        return ticket

    def open(self, lane: Lane) -> None:
        """Let requests flow to this worker."""
        self._lanes[lane.number] = lane
        self._flow()
        if len(self._queue) > self.crowd:
            self._reports.crowded()

    def drain(self, number: int, *, finish_queue: bool) -> None:
        """Let a worker finish what it holds, then report it drained.

        Args:
            finish_queue: it also takes what has been accepted until now and still waits.
        """
        lane = self._lanes[number]
        if finish_queue:
            self._queue.keep_order()
        lane.takes_up_to = self._next_id - 1 if finish_queue else 0
        self.flow()

    def close(self, number: int, blame: SnoozeError | None = None) -> None:
        """Nothing flows to this worker any more; what it still held will be tried again.

        Args:
            blame: what the worker died of; a request that is blamed a second time is answered so.
        """
        lane = self._lanes.pop(number, None)
        if lane is not None:
            self._take_back(lane, blame)
            self._flow()

    def refuse(self, error: SnoozeError) -> None:
        """Answer everything that waits with this error."""
        while self._queue:
            self._fail(self._queue.popleft(), error)

    def receive(self, lane: Lane, frame: Frame) -> None:
        """Hand a worker's answer to whoever waits; what nobody waits for any more is dropped."""
        lane.owed.discard(frame.id)
        lane.answered += 1
        ticket = lane.in_flight.pop(frame.id, None)
        if ticket is None:
            return
        if frame.kind == _RESULT:
            self.row_s += _NEWEST_WEIGHT * (frame.t1 / (frame.count or 1) - self.row_s)
            result = InferenceResult(frame.body, frame.count, frame.t0, frame.t1)
            self._reports.answered(ticket, result)
            self._settle(ticket, result)
        else:
            self._receive_failure(lane, ticket, frame)

    def _receive_failure(self, lane: Lane, ticket: Ticket, frame: Frame) -> None:
        failure = msgspec.json.decode(frame.body, type=WorkerFailure)
        error = from_code(failure.code, failure.message)
        if failure.traceback is not None:
            fields = {"model": ticket.request.model_id, "code": failure.code}
            _log.warning("request failed:\n%s", failure.traceback, extra={"fields": fields})
        if isinstance(error, OutOfMemory):
            self._try_again(ticket, error)
            self._reports.ran_out_of_memory(lane.number)
        else:
            self._fail(ticket, error)

    def flow(self) -> None:
        """Fill the workers' windows; call after a round of `receive`."""
        self._flow()
        for lane in list(self._lanes.values()):
            if lane.takes_up_to is not None:
                self._check_drained(lane)

    def expire(self, ticket: Ticket) -> None:
        request = ticket.request
        waited_s = request.deadline - request.arrived_at
        late = DeadlineExceeded(f"no answer within {waited_s:.3g} s, the request's time limit")
        blocked_by = None if self._lanes else self.blocked_by
        self.withdraw(ticket, blocked_by or late)

    def withdraw(self, ticket: Ticket, error: SnoozeError) -> None:
        """Take a request out, wherever it is, and fail its answer."""
        if ticket.found is not None:
            return
        for lane in self._lanes.values():
            if lane.in_flight.pop(ticket.id, None) is not None:
                lane.outlet.send(Kind.CANCEL, id=ticket.id)
                break
        else:
            self._queue.remove(ticket)
        self._fail(ticket, error)
        self.flow()

    def _flow(self) -> None:
        queue = self._queue
        while queue:
            open_lanes = [lane for lane in self._lanes.values() if lane.takes(queue[0])]
            if not open_lanes:
                return
            chosen = 0 if len(open_lanes) == 1 else self.choose(open_lanes)
            ticket = queue.popleft()
            open_lanes[chosen].send(ticket, len(queue))

    def _note_need(self, now: float) -> None:
        windows = sorted(lane.window for lane in self._lanes.values())
        if self._outstanding > sum(windows[:-1]):
            self.needed_at = now

    def _check_drained(self, lane: Lane) -> None:
        waiting = self._queue and self._queue[0].id <= (lane.takes_up_to or 0)
        if not lane.in_flight and not waiting:
            self._reports.drained(lane.number)

    def _take_back(self, lane: Lane, blame: SnoozeError | None) -> None:
        for ticket in reversed(lane.in_flight.values()):
            self._try_again(ticket, blame)
        lane.in_flight.clear()

    def _try_again(self, ticket: Ticket, blame: SnoozeError | None) -> None:
        if blame is not None:
            ticket.blamed += 1
            if ticket.blamed > _BLAMES_TOLERATED:
                if not isinstance(blame, OutOfMemory):  # what is too much now may fit later
                    self._quarantine.add(ticket.request.body)
                self._fail(ticket, blame)
                return
        self._queue.rejoin(ticket)

    def _fail(self, ticket: Ticket, error: SnoozeError) -> None:
        self._reports.failed(ticket)
        self._settle(ticket, error)

    def _settle(self, ticket: Ticket, found: Outcome) -> None:
        ticket.settle(found)
        self._outstanding -= 1
        if not self._outstanding:
            self._reports.work_finished()
