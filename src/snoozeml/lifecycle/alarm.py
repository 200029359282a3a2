"""A timer that may ring early."""

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Rings once, at the earliest of the instants asked for since it rang last.

    What an instant was asked for may have been settled by the time it comes, so whoever hears the
    alarm looks what is due, and sets it anew. In exchange, an instant that moves further away, as
    it does with every request, costs no new timer.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._heard = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def ring_by(self, at: float) -> None:
        """Ring at this instant (monotonic seconds) or before."""
        if self._rings_at <= at:
            return
        self.cancel()
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, math.inf

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        self._heard()
