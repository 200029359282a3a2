"""All memory that models may take: the machine's, and that of each device."""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final

from snoozeml.lifecycle.accelerators import Accelerators, device_with_memory
from snoozeml.lifecycle.memory import available_bytes, family, parse_limit, proportional_bytes
from snoozeml.lifecycle.residency import RAM, Pool

_log = logging.getLogger("snoozeml.memory")

_RELEASE_S: Final = 2.0
_LOOK_AGAIN_S: Final = 0.02  # a driver has no way to tell when it has cleaned up


def limit_name(where: str) -> str:
    """Which setting limits what models take of a memory."""
    return "max_memory" if where == RAM else f"max_vram of {where}"


class Pools:
    """See the module.

    Args:
        memory_bytes: what all models together may take of the machine's memory.
        max_vram: what they may take of each device's, in bytes or as a share of what it has.
    """

    def __init__(
        self, *, memory_bytes: int, max_vram: int | str, accelerators: Accelerators
    ) -> None:
        self.memory_bytes = memory_bytes
        self._max_vram = max_vram
        self._accelerators = accelerators

    def pool(self, where: str) -> Pool | None:
        """One memory as it is now; None: there is no such device, or nobody counts its memory."""
        if where == RAM:
            return Pool(self.memory_bytes, available_bytes())
        found = self._accelerators.memory(where)
        if found is None:
            return None
        return Pool(parse_limit(self._max_vram, found.total_bytes), found.free_bytes)

    async def wake(self, wheres: Iterable[str]) -> None:
        """Look at devices for the first time, which takes a driver that sleeps seconds."""
        for where in wheres:
            if where != RAM:
                await asyncio.to_thread(self.pool, where)

    def taken(self, pid: int, device: str) -> dict[str, int | None]:
        """What a worker takes of each memory; None: nobody says.

        Args:
            device: where its model runs.
        """
        return {RAM: proportional_bytes(pid), **self.vram_taken(pid, device)}

    def vram_taken(self, pid: int, device: str) -> dict[str, int | None]:
        """What a worker takes of its device's own memory, if that has any; None: nobody says."""
        where = device_with_memory(device)
        if where is None:
            return {}
        sizes = [self._accelerators.taken_bytes(where, one) for one in family(pid)]
        known = [size for size in sizes if size is not None]
        return {where: sum(known) if known else None}

    async def released(self, pid: int) -> None:
        """Return once every device has taken back what a process had that is gone.

        A driver may still be at it when the process has been reaped, and whoever is started
        meanwhile finds too little. One that never ends (it happens) is not waited for.
        """
        give_up_at = time.monotonic() + _RELEASE_S
        while self._accelerators.holds(pid):
            if time.monotonic() > give_up_at:
                _log.warning(
                    "the GPU's driver still counts memory of a process that is gone: %d", pid
                )
                return
            await asyncio.sleep(_LOOK_AGAIN_S)
