"""The one road to a model, for every transport."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from snoozeml.core.request import InferenceRequest, InferenceResult
from snoozeml.errors import ShuttingDown, SnoozeError
from snoozeml.lifecycle.actor import ModelActor
from snoozeml.lifecycle.registry import Registry
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

    async def infer(
        self, request: InferenceRequest, caller: Caller | None = None
    ) -> InferenceResult:
        """Answer one request.

        Cancelling this takes the request out of the queue, or off the worker's hands if it has not
        run yet; so does `caller.on_gone()`, without cancelling the caller's task.

        Raises:
            SnoozeError: why there is no answer.
        """
        actor = None
        try:
            actor = self._admitting_actor(request.model_id)
            ticket = actor.submit(request)
            try:
                if caller is not None:
                    caller.on_gone = ticket.abandon
                result = await ticket.answer
            except asyncio.CancelledError:
                ticket.abandon()
                raise
            finally:
                if caller is not None:
                    caller.on_gone = None
        except (SnoozeError, asyncio.CancelledError):
            if actor is None:
                self._totals.failed += 1
            else:
                actor.statistics.failed.add(time.monotonic() - request.arrived_at)
            raise
        if ticket.woke_model:
            result.cold_start_s = actor.crew.cold_start_s
        took_s = time.monotonic() - request.arrived_at
        actor.statistics.answered(took_s, result.queue_s, result.run_s)
        return result

    def _admitting_actor(self, model_id: str) -> ModelActor:
        if self.draining:
            raise ShuttingDown("the server is shutting down and takes no new requests")
        return self._registry.get(model_id)
