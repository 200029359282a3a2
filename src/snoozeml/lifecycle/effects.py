"""What can be done about a model, once the machine has decided."""

import msgspec

from snoozeml.errors import SnoozeError


class Effect(msgspec.Struct, frozen=True):
    """Something to do."""


class StartWorker(Effect, frozen=True):
    number: int


class StopWorker(Effect, frozen=True):
    number: int
    reason: str


class KillWorker(Effect, frozen=True):
    number: int


class OpenLane(Effect, frozen=True):
    """Let queued and new requests flow to the worker."""

    number: int


class DrainLane(Effect, frozen=True):
    """Let the worker finish, then report `Drained`.

    Attributes:
        finish_queue: it also takes what has been accepted until now and still waits.
    """

    number: int
    finish_queue: bool


class CloseLane(Effect, frozen=True):
    """Nothing flows to the worker any more; what it still held goes back to the queue.

    Attributes:
        blame: the worker died of this, and maybe of what it held; a request that is blamed twice
            is answered with it.
    """

    number: int
    blame: SnoozeError | None = None


class MakeRoom(Effect, frozen=True):
    """Evict one idle neighbour: this model ran out of memory."""


class RefuseQueued(Effect, frozen=True):
    """Answer every queued request with this error."""

    error: SnoozeError


class SetTimer(Effect, frozen=True):
    """Ring at this instant or before; what it means is decided when it rings."""

    at: float


class AnswerLoads(Effect, frozen=True):
    error: SnoozeError | None = None


class AnswerUnloads(Effect, frozen=True): ...


class Finish(Effect, frozen=True):
    """The model is closed: nothing will happen to it any more."""
