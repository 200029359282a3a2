"""Notices workers that hold requests and give no sign of life."""

import asyncio
import time
from collections.abc import Callable, Mapping

from snoozeml.lifecycle.lane import Lane


class HangWatch:
    """One timer for all workers of a model, set only while there is work.

    Args:
        lanes: the workers that there are, whenever the watch looks.
        has_work: whether to go on.
        end: called with each worker that has been silent for too long.

    Attributes:
        limit_s: how long a worker that holds requests may be silent.
    """

    def __init__(
        self,
        lanes: Mapping[int, Lane],
        has_work: Callable[[], bool],
        end: Callable[[Lane], None],
        limit_s: float,
    ) -> None:
        self.limit_s = limit_s
        self._lanes = lanes
        self._has_work = has_work
        self._end = end
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Look when the first busy worker may have been silent for too long, and so on."""
        if self._timer is None and self._has_work():
            moved_at = [lane.moved_at for lane in self._lanes.values() if lane.owed]
            look_at = min(moved_at, default=time.monotonic()) + self.limit_s
            self._timer = asyncio.get_running_loop().call_at(look_at, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for lane in list(self._lanes.values()):
            if lane.owed and now >= lane.moved_at + self.limit_s:
                lane.moved_at = now  # ended once; the news of that is on its way
                self._end(lane)
        self.watch()
