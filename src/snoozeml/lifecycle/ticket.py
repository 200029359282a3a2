"""One request's place in the daemon."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from snoozeml.core.request import InferenceRequest, InferenceResult
from snoozeml.errors import Cancelled, SnoozeError
from snoozeml.lifecycle.deadlines import Deadlines
from snoozeml.lifecycle.queue import DEFAULT_LEVEL

Outcome = InferenceResult | SnoozeError


class Holder(Protocol):
    """Who has the request: a `Dispatch`."""

    loop: asyncio.AbstractEventLoop
    deadlines: Deadlines[Any]

    def withdraw(self, ticket: "Ticket", error: SnoozeError) -> None:
        """Take a request out, wherever it is, and settle it with this error."""


class Ticket:
    """One request's place in the daemon until it is answered.

    Attributes:
        level: see `Queue`.
        found: what has become of it; None: it waits, or is under way.
        woke_model: this request found the model asleep and caused the load.
    """

    __slots__ = (
        "_hear", "_waiting", "blamed", "due", "found", "holder", "id", "level", "request",
        "woke_model",
    )  # fmt: skip

    def __init__(self, id: int, request: InferenceRequest, holder: Holder) -> None:
        self.id = id
        self.request = request
        self.level = request.priority or DEFAULT_LEVEL
        self.holder = holder
        self.blamed = 0
        self.woke_model = False
        self.due = holder.deadlines.add(request.deadline, self)
        self.found: Outcome | None = None
        self._hear: Callable[[Outcome], None] | None = None
        self._waiting: asyncio.Future[None] | None = None

    async def outcome(self) -> InferenceResult:
        """Wait for the answer; cancelling this abandons the request.

        Raises:
            SnoozeError: why there is none.
        """
        if self.found is None:
            # Asking for the running loop costs a system call, so the holder remembers it.
            self._waiting = self.holder.loop.create_future()
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
        """It has been answered or withdrawn; only the holder says so."""
        self.found = found
        self.due.settle()
        if self._hear is not None:
            self._hear(found)
        elif self._waiting is not None and not self._waiting.done():  # it may have been cancelled
            self._waiting.set_result(None)

    def abandon(self) -> None:
        """Nobody wants the answer any more: leave the queue, and fail as cancelled."""
        self.holder.withdraw(self, Cancelled("the caller left before the answer was there"))
