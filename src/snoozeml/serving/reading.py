"""Looking at every model at once, for a scrape."""

import asyncio
from collections.abc import Iterable, Mapping

from snoozeml.lifecycle.actor import ModelActor
from snoozeml.lifecycle.pools import Pools
from snoozeml.lifecycle.registry import Registry
from snoozeml.lifecycle.residency import RAM
from snoozeml.telemetry.reading import ModelReading, Reading

Located = tuple[int, str]
"""A worker: its process, and the device it runs on."""

Taken = Mapping[Located, Mapping[str, int | None]]
"""Bytes of each memory by worker; None: nobody says."""


class Reader:
    """See the module.

    Args:
        models_limit: how many may be loaded.
    """

    def __init__(self, registry: Registry, pools: Pools, models_limit: int) -> None:
        self._registry = registry
        self._pools = pools
        self._models_limit = models_limit

    async def read(self) -> Reading:
        """What is so now; no model is woken, and only those that are awake are measured.

        When this returns, nothing has happened since everything but the memory was looked at: a
        model that is here has not given its counts to the totals yet.
        """
        workers = [where for actor in self._registry.tenants() for where in actor.crew.located()]
        # The kernel takes a millisecond for each, during which others can be served.
        taken = await asyncio.to_thread(self._measure, workers) if workers else {}
        models = [_reading(actor, taken) for actor in self._registry]
        leaving = [_reading(actor, taken) for actor in self._registry.unlisted()]
        return Reading(
            models=models,
            leaving=leaving,
            models_limit=self._models_limit,
            memory_limit_bytes=self._pools.memory_bytes,
        )

    def _measure(self, workers: Iterable[Located]) -> Taken:
        return {(pid, device): self._pools.taken(pid, device) for pid, device in workers}


def _reading(actor: ModelActor, taken: Taken) -> ModelReading:
    sizes = [
        (where, size)
        for worker in actor.crew.located()
        for where, size in taken.get(worker, {}).items()
    ]
    vram = [size for where, size in sizes if where != RAM]
    return ModelReading(
        model_id=actor.config.id,
        statistics=actor.statistics,
        state="failed" if actor.has_failed else actor.public_state,
        replicas=actor.crew.size,
        queue_depth=actor.dispatch.queue_depth,
        memory_bytes=sum(size or 0 for where, size in sizes if where == RAM),
        vram_bytes=_sum_of_known(vram),
    )


def _sum_of_known(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
