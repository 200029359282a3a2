"""The way of requests through the daemon: waiting, in flight, answered."""

import asyncio
import logging
from typing import Protocol

from snoozeml.core.request import InferenceRequest, InferenceResult
from snoozeml.errors import (
    DeadlineExceeded,
    OutOfMemory,
    Overloaded,
    SnoozeError,
    WorkerCrashed,
    from_code,
)
from snoozeml.lifecycle.deadlines import Deadlines
from snoozeml.lifecycle.failures import failure_in
from snoozeml.lifecycle.lane import Lane
from snoozeml.lifecycle.quarantine import Quarantine
from snoozeml.lifecycle.queue import Queue
from snoozeml.lifecycle.routing import Choose
from snoozeml.lifecycle.ticket import Outcome, Ticket
from snoozeml.wire.frames import Frame, Kind

_log = logging.getLogger("snoozeml.model")

# A request that was in flight when a worker died is tried on one more worker, alone. Inference has
# no side effects, so that is safe; at the second death the request itself is the cause.
_BLAMES_TOLERATED = 1

# Weight of the newest run in the estimate of the time that one row takes.
_NEWEST_WEIGHT = 0.1

_RESULT = Kind.RESULT  # to look it up in its class takes as long as to compare it


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
        ticket = lane.take_answer(frame.id)
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
        failure = failure_in(frame.body)
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
