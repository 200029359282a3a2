"""The one road to a model, for every transport."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from snoozeml.core.request import InferenceRequest, InferenceResult
from snoozeml.errors import ShuttingDown, SnoozeError
from snoozeml.lifecycle.registry import Registry
from snoozeml.lifecycle.ticket import Ticket
from snoozeml.telemetry.metrics import Totals


class Caller(Protocol):
    """Whoever waits for an answer, and may leave before it is there.

    Attributes:
        on_gone: set while an inference is under way; to be called when the caller has left.
    """

    on_gone: Callable[[], None] | None


class Serving:
    """Admits requests, counts them, and hands them to their models."""

    def __init__(self, registry: Registry, totals: Totals) -> None:
        self._registry = registry
        self._totals = totals
        self._drain_began = asyncio.Event()

    @property
    def draining(self) -> bool:
        return self._drain_began.is_set()

    def drain(self) -> None:
        """From now on refuse new requests; those that have been accepted will be answered."""
        self._drain_began.set()

    async def until_draining(self) -> None:
        """Return when the server begins to shut down; for transports with calls without end."""
        await self._drain_began.wait()

    def submit(self, request: InferenceRequest) -> Ticket:
        """Accept one request. Who does not want the answer any more says `abandon`.

        Raises:
            SnoozeError: why it is not accepted.
        """
        try:
            if self.draining:
                raise ShuttingDown("the server is shutting down and takes no new requests")
            actor = self._registry.get(request.model_id)
        except SnoozeError:
            self._totals.failed += 1
            raise
        return actor.submit(request)

    async def infer(
        self, request: InferenceRequest, caller: Caller | None = None
    ) -> InferenceResult:
        """Answer one request.

        Cancelling this takes the request out of the queue, or off the worker's hands if it has not
        run yet; so does `caller.on_gone()`, without cancelling the caller's task.

        Raises:
            SnoozeError: why there is no answer.
        """
        ticket = self.submit(request)
        if caller is not None:
            caller.on_gone = ticket.abandon
        try:
            return await ticket.outcome()
        finally:
            if caller is not None:
                caller.on_gone = None
