"""What can happen to a model."""

import msgspec

from snoozeml.errors import SnoozeError
from snoozeml.lifecycle.limits import Limits


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


class EvictAsked(Event, frozen=True):
    """Another model needs the place of this one.

    Attributes:
        reason: `capacity`, or `oom` when memory has run out.
    """

    reason: str


class SettingsChanged(Event, frozen=True):
    """What a worker gets at its start, and keeps, has changed, or may have where it failed."""


class LimitsChanged(Event, frozen=True):
    limits: Limits


class Crowded(Event, frozen=True):
    """More requests wait than `autoscale_queue_threshold`."""


class TimerRang(Event, frozen=True):
    """The timer rang.

    Attributes:
        needed_at: monotonic seconds at which there was last more work than one replica less would
            have held; the queue's own figure.
    """

    needed_at: float


class WorkerReady(Event, frozen=True):
    number: int


class LoadFailed(Event, frozen=True):
    """The load ended without a worker; whatever was started for it has been reaped."""

    number: int
    error: SnoozeError


class RanOutOfMemory(Event, frozen=True):
    """A worker that goes on living could not run a request for lack of memory."""

    number: int


class Drained(Event, frozen=True):
    """The worker holds no request, and none that it should still take waits for it."""

    number: int


class WorkerExited(Event, frozen=True):
    """The worker's process has been reaped.

    Attributes:
        error: how it died; None when it left because it was asked to.
        healthy: its death says nothing against the model: it had answered before, or somebody
            outside killed it.
        blamed: what it held may have caused its death.
    """

    number: int
    error: SnoozeError | None = None
    healthy: bool = False
    blamed: bool = False
