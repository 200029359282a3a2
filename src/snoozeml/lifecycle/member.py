"""One worker of a model, from the wish for it to its end."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from snoozeml.config.schema import ModelConfig
from snoozeml.errors import SnoozeError
from snoozeml.lifecycle import events
from snoozeml.lifecycle.memory import proportional_bytes
from snoozeml.lifecycle.pools import Pools
from snoozeml.lifecycle.residency import Holding, Sizes, Wanted, holding
from snoozeml.lifecycle.worker import Worker
from snoozeml.telemetry.statistics import ModelStatistics
from snoozeml.wire.frames import Frame

_COUNT_GOOD_S = 1.0


class Owner(Protocol):
    """Whose workers they are."""

    statistics: ModelStatistics

    def tell(self, event: events.Event) -> None:
        """Take news of a worker."""

    def receive(self, number: int, frames: list[Frame]) -> None:
        """Take what a worker sent."""

    def wait_for_room(self, why: SnoozeError | None) -> None:
        """A worker has to wait for room, for this reason; None: it has to wait no more."""

    def refuse_loads(self, why: SnoozeError) -> None:
        """There will be no room unless somebody changes something: tell whoever asked for it."""

    def needs_worker(self) -> bool:
        """Whether anybody still waits for a worker that waits for room."""

    def has_answered(self, number: int) -> bool:
        """Whether a worker has answered a request."""


class Member:
    """One worker, from the wish for it to its end; applies for its room in memory.

    Args:
        wish: what is asked for when it is to be started.
    """

    def __init__(
        self,
        config: ModelConfig,
        wish: Callable[["Member"], Wanted],
        owner: Owner,
        pools: Pools,
    ) -> None:
        self._wish = wish
        self._pools = pools
        self.wait_for_room = owner.wait_for_room
        self.refuse_loads = owner.refuse_loads
        self._is_needed = owner.needs_worker
        self.starting: asyncio.Task[None] | None = None
        self.worker: Worker | None = None
        self.config = config
        self.claimed: Sizes | None = None
        self._counted_at = 0.0
        self._counted: Mapping[str, int | None] = {}
        self.asked_to_leave = False
        self.has_served = False
        self.ran_out_of_memory = False
        self.ended_because: SnoozeError | None = None

    def wanted(self) -> Wanted | None:
        return self._wish(self) if self._is_needed() else None

    def claim(self, needs: Sizes) -> None:
        self.claimed = needs

    def memory_bytes(self) -> int:
        """As the kernel counts; 0 while there is no process to count."""
        return (proportional_bytes(self.worker.pid) or 0) if self.worker is not None else 0

    def taken(self) -> Mapping[str, int | None]:
        """As the kernel and the drivers count; nothing while there is no process to count."""
        if self.worker is None:
            return {}
        return self._pools.taken(self.worker.pid, self.worker.ready.device)

    def vram_taken(self) -> Mapping[str, int | None]:
        """As the drivers count; nothing while there is no process to count."""
        if self.worker is None:
            return {}
        return self._pools.vram_taken(self.worker.pid, self.worker.ready.device)

    def holds(self) -> Holding | None:
        """What it takes or will take; None before it was given room.

        The kernel takes a millisecond to count, so while somebody waits for room and looks often,
        its word is good for a moment.
        """
        if self.claimed is None:
            return None
        now = time.monotonic()
        if self.worker is not None and now > self._counted_at + _COUNT_GOOD_S:
            self._counted_at, self._counted = now, self.taken()
        return holding(self.claimed, self._counted)
