"""The second tier of a worker: packed weights, once the model has proven used."""

import math
import threading
from typing import Final

from snoozeml.core.plan import WorkerFailure, WorkerSpec
from snoozeml.worker.engines import Engine
from snoozeml.worker.failures import failure_of

_ASK_AGAIN_S: Final = 60.0


class Packing:
    """Says when to pack, and does it in the background, once, while the model goes on answering.

    A model proves used by runs: after a number of them, or by one that comes some time after the
    first. One that is woken, asked and left alone stays as small as it was loaded.

    Args:
        notices: gets an entry if packing fails; the model then stays as it is.
    """

    def __init__(self, spec: WorkerSpec, engine: Engine, notices: list[WorkerFailure]) -> None:
        self._engine: Final = engine
        self._notices: Final = notices
        self._after_s: Final = spec.pack_after_s
        self._is_pending = engine.is_packable
        self._runs_missing: float = spec.pack_after_runs
        self._due_at: float | None = None

    def has_proven_used(self, now: float) -> bool:
        """Count a run that has ended at `now`, in monotonic seconds.

        Returns:
            whether to ask for room now; again after a while, unless `start` is called before.
        """
        if not self._is_pending:
            return False
        if self._due_at is None:
            self._due_at = now + self._after_s
        self._runs_missing -= 1
        if self._runs_missing > 0 and now < self._due_at:
            return False
        self._runs_missing, self._due_at = math.inf, now + _ASK_AGAIN_S
        return True

    def start(self) -> None:
        """There is room; being told so twice changes nothing."""
        if self._is_pending:
            self._is_pending = False
            threading.Thread(target=self._pack, daemon=True).start()

    def _pack(self) -> None:
        try:
            self._engine.pack()
        except Exception as error:  # whatever it is, the model answers without being packed
            failure = failure_of(error)
            why = f"the model stays at its first, slower tier: {failure.message}"
            self._notices.append(
                WorkerFailure(code=failure.code, message=why, traceback=failure.traceback)
            )
