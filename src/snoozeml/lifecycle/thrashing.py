"""Noticing models that push each other out of memory again and again."""

import logging
import time
from collections import deque

from snoozeml.telemetry.metrics import Totals

_log = logging.getLogger("snoozeml.model")

WINDOW_S = 60.0
TOLERATED = 5


class Evictions:
    """Counts why one model's workers leave, and warns when it comes back too often."""

    def __init__(self, model_id: str, totals: Totals) -> None:
        self._model_id = model_id
        self._totals = totals
        self._thrashing = Thrashing()
        self._was_evicted = False

    def stopping(self, reason: str) -> None:
        if reason in self._totals.deallocations:
            self._totals.deallocations[reason] += 1
        self._was_evicted = reason in ("capacity", "oom")

    def starting(self) -> None:
        if not self._was_evicted:
            return
        self._was_evicted = False
        if self._thrashing.reloaded(time.monotonic()):
            self._totals.thrashing += 1
            if self._totals.thrashing == 1:  # said once, it is known
                _log.warning(
                    "model %s has been evicted and loaded again more than %d times in %g s: more "
                    "models are in use than fit; raise max_loaded_models or max_memory, or pin it",
                    self._model_id,
                    TOLERATED,
                    WINDOW_S,
                )


class Thrashing:
    """Counts the loads of one model that follow an eviction."""

    def __init__(self) -> None:
        self._loads: deque[float] = deque()

    def reloaded(self, now: float) -> bool:
        """Note a load of a model that had been evicted; whether there are too many of them.

        Args:
            now: monotonic seconds.
        """
        self._loads.append(now)
        while self._loads[0] < now - WINDOW_S:
            self._loads.popleft()
        return len(self._loads) > TOLERATED
