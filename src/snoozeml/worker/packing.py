"""The second tier of a worker: weights laid out for speed, once the model has proven used."""

import threading
from typing import Final

from snoozeml.core.plan import WorkerFailure, WorkerSpec
from snoozeml.worker.engines import Engine
from snoozeml.worker.failures import failure_of


class Packing:
    """Packs a model in the background, once, while it goes on answering.

    A model proves used by runs: after a number of them, or by one that comes some time after the
    first. One that is woken, asked and left alone stays as small as it was loaded.

    Args:
        notices: gets an entry if packing fails; the model then stays as it is.
    """

    def __init__(self, spec: WorkerSpec, engine: Engine, notices: list[WorkerFailure]) -> None:
        self._engine: Final = engine
        self._notices: Final = notices
        self._after_s: Final = spec.pack_after_s
        self._is_pending = spec.may_pack and engine.is_packable
        self._runs_missing = spec.pack_after_runs
        self._due_at: float | None = None

    def ran(self, now: float) -> None:
        """Count a run that has ended at `now`, in monotonic seconds."""
        if not self._is_pending:
            return
        if self._due_at is None:
            self._due_at = now + self._after_s
        self._runs_missing -= 1
        if self._runs_missing <= 0 or now >= self._due_at:
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
