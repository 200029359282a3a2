"""What can be done about a model, once the machine has decided."""

import msgspec

from snoozeml.errors import SnoozeError


class Effect(msgspec.Struct, frozen=True):
    """Something to do."""


class StartWorker(Effect, frozen=True):
    worker: int


class StopWorker(Effect, frozen=True):
    worker: int
    reason: str


class KillWorker(Effect, frozen=True):
    worker: int


class OpenDispatch(Effect, frozen=True):
    """Let queued and new requests flow to the worker."""


class DrainDispatch(Effect, frozen=True):
    """Let only what has been accepted until now flow; then report `Drained`."""


class CloseDispatch(Effect, frozen=True):
    """Keep requests in the queue."""


class RefuseQueued(Effect, frozen=True):
    """Answer every queued request with this error."""

    error: SnoozeError


class SetIdleTimer(Effect, frozen=True):
    """Ring at this instant or before; what it means is decided when it rings."""

    at: float


class AnswerLoads(Effect, frozen=True):
    error: SnoozeError | None = None


class AnswerUnloads(Effect, frozen=True): ...


class Finish(Effect, frozen=True):
    """The model is closed: nothing will happen to it any more."""
