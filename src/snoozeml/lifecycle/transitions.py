"""How what becomes of a model is told in the log."""

import logging
from typing import Final

from snoozeml.lifecycle import events
from snoozeml.lifecycle.model import Model, Phase

_log = logging.getLogger("snoozeml.model")

_WHY: Final[dict[type[events.Event], str]] = {
    events.WorkArrived: "request",
    events.LoadAsked: "asked",
    events.UnloadAsked: "asked",
    events.PinAsked: "pinned",
    events.SettingsChanged: "refresh",
    events.RanOutOfMemory: "oom",
    events.CloseAsked: "close",
    events.KillAsked: "close",
}


def log_transition(
    model_id: str, before: Model, event: events.Event, after: Model, after_s: float
) -> None:
    """Write one line about a change of phase.

    Args:
        event: what brought it about.
        after_s: how long the phase before lasted.
    """
    fields: dict[str, object] = {
        "model": model_id,
        "state": f"{before.phase.value}→{after.phase.value}",
        "after_s": round(after_s, 3),
    }
    if (why := why_of(event, before)) is not None:
        fields["why"] = why
    if after.phase is Phase.FAILED and after.last_error is not None:
        fields["error"] = after.last_error.message
    _log.log(_level(before, after), "transition", extra={"fields": fields})


def why_of(event: events.Event, before: Model) -> str | None:
    """What a change of phase is due to, in a word; None: to nothing but the change before it."""
    match event:
        case events.EvictAsked(reason):
            return reason
        case events.TimerRang():
            return "retry" if before.phase is Phase.FAILED else "idle"
        case events.WorkerExited(error=error) if error is not None:
            return "crash"
        case events.WorkFinished() if before.closing:
            return "close"
        case _:
            return _WHY.get(type(event))


def _level(before: Model, after: Model) -> int:
    if after.phase is Phase.FAILED:
        return logging.WARNING
    # What happens to a model that sleeps while the daemon stops is no news.
    return logging.DEBUG if before.phase is Phase.IDLE and after.closing else logging.INFO
