"""What can happen to a model."""

import msgspec

from snoozeml.errors import SnoozeError


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""


class WorkArrived(Event, frozen=True):
    """The first request after there was none."""


class WorkFinished(Event, frozen=True):
    """No request is queued or in flight any more."""


class LoadAsked(Event, frozen=True): ...


class UnloadAsked(Event, frozen=True): ...


class PinAsked(Event, frozen=True): ...


class UnpinAsked(Event, frozen=True): ...


class CloseAsked(Event, frozen=True): ...


class KillAsked(Event, frozen=True): ...


class SettingsChanged(Event, frozen=True):
    idle_timeout_s: float


class IdleDue(Event, frozen=True):
    """The idle timer rang."""


class WorkerReady(Event, frozen=True):
    worker: int


class LoadFailed(Event, frozen=True):
    """The load ended without a worker; whatever was started for it has been reaped."""

    worker: int
    error: SnoozeError


class Drained(Event, frozen=True):
    """The worker holds no request, and none from before the drain waits for it."""

    worker: int


class WorkerExited(Event, frozen=True):
    """The worker's process has been reaped.

    Attributes:
        error: how it died; None when it left because it was asked to.
    """

    worker: int
    error: SnoozeError | None = None
