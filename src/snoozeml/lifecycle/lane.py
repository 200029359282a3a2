"""The requests that one worker holds."""

import time
from collections.abc import Sequence
from typing import Protocol

from snoozeml.lifecycle.ticket import Ticket
from snoozeml.wire.frames import Kind

_LARGE_BYTES = 64 * 2**20
_INFER = Kind.INFER  # to look it up in its class takes as long as to compare it


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


class Lane:
    """The requests that one worker holds.

    Args:
        window: how many requests the worker may hold; about two batches, so that the next one is
            there when a run ends, and the rest stay where a deadline can still reach them. Once
            they are large together it gets no more: what is withdrawn from it stays in memory
            until it has read it, and a worker reads between runs only.

    Attributes:
        takes_up_to: number of the last request that the worker still takes; None: there is no last.
        in_flight: those that somebody waits for, by number.
        owed: sizes in bytes of all that the worker has not answered, those that were withdrawn
            included, by number.
        answered: how many requests the worker has answered.
        moved_at: monotonic seconds of the last sign of progress: an answer, or the first request
            into empty hands.
    """

    def __init__(self, number: int, outlet: Outlet, window: int) -> None:
        self.number = number
        self.outlet = outlet
        self.window = window
        self.in_flight: dict[int, Ticket] = {}
        self.owed: dict[int, int] = {}
        self.takes_up_to: int | None = None
        self.answered = 0
        self.moved_at = 0.0
        self._holds_suspect = False
        self._owed_bytes = 0

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
        has_room = len(self.owed) < self.window and self._owed_bytes < _LARGE_BYTES
        return has_room and not alone

    def send(self, ticket: Ticket, backlog: int) -> None:
        request = ticket.request
        if not self.owed:
            self.moved_at = time.monotonic()
        size_bytes = sum(map(len, request.body))
        self.owed[ticket.id] = size_bytes
        self._owed_bytes += size_bytes
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

    def take_answer(self, number: int) -> Ticket | None:
        """The worker has answered a request; returns it if somebody still waits for it."""
        self._owed_bytes -= self.owed.pop(number, 0)
        self.answered += 1
        return self.in_flight.pop(number, None)
