"""When the daemon gives memory back that large bodies took."""

import time

from snoozeml.core import heap
from snoozeml.lifecycle.alarm import Alarm


class Trimmer:
    """Has the heap trimmed once nothing large has passed for a while. Use inside a running loop."""

    def __init__(self) -> None:
        self._alarm = Alarm(self._look)
        self._due_at = 0.0

    def large_passes(self) -> None:
        """Call it for each large body, or for each piece of one."""
        self._due_at = time.monotonic() + heap.QUIET_S
        self._alarm.ring_by(self._due_at)

    def _look(self) -> None:
        if time.monotonic() < self._due_at:  # more has come since
            self._alarm.ring_by(self._due_at)
        else:
            heap.trim()
