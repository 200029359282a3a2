"""What happens to a model: the pure half of the lifecycle.

`step(model, event, now)` says which state follows and what must be done; it does nothing itself.
The actor (`lifecycle.actor`) is the only caller that acts, and the only writer of a model's state.

                  WorkArrived, LoadAsked                    WorkerReady
         ┌─ IDLE ───────────────────────────▶ LOADING ──────────────────────▶ READY
         │   ▲                                 │  ▲                           │ │
         │   │ WorkerExited, nothing waits     │  │ WorkerExited,             │ │ UnloadAsked
         │   │                                 │  │ work waits                │ │ while busy
         │  STOPPING ◀─────────────────────────│──┴── IdleDue, UnloadAsked ◀──┘ ▼
         │   ▲                       LoadFailed│                             DRAINING
         │   └────────────── Drained ──────────│────────────────────────────────┘
         │                                     ▼
         └────────────────────────────────── FAILED: refuses until `retry_at`, then loads again

CLOSED is the end: the model has been removed, or the daemon stops.
"""

from enum import Enum
from typing import Final

import msgspec

from snoozeml.errors import ShuttingDown, SnoozeError
from snoozeml.lifecycle import effects, events

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_LONGEST_S: Final = 60.0


class Phase(Enum):
    IDLE = "idle"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"
    CLOSED = "closed"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what happens next to one model.

    Attributes:
        worker: number of the current worker, 0 before the first; each start takes the next number,
            so that news of an earlier worker can be told apart.
        idle_timeout_s: unload after this long without work; 0 means never.
        has_work: some request is queued or in flight.
        load_wanted: somebody asked for a load while a worker was on its way out.
        unload_wanted: somebody asked to unload while the model was loading.
        closing: no more work will come; leave as soon as what is there has been answered.
        killed: leave now, and refuse what is there.
        failures: loads that failed in a row.
        idle_at: monotonic seconds from which a ready model without work has been idle long enough.
        retry_at: monotonic seconds before which a failed model refuses.
    """

    phase: Phase = Phase.IDLE
    worker: int = 0
    idle_timeout_s: float
    pinned: bool = False
    has_work: bool = False
    load_wanted: bool = False
    unload_wanted: bool = False
    closing: bool = False
    killed: bool = False
    idle_at: float = 0.0
    failures: int = 0
    retry_at: float = 0.0
    last_error: SnoozeError | None = None


Step = tuple[Model, tuple[effects.Effect, ...]]


def backoff_s(failures: int) -> float:
    """How long to refuse after this many failed loads in a row."""
    return float(min(BACKOFF_LONGEST_S, BACKOFF_FIRST_S * 2 ** min(failures - 1, 16)))


def step(model: Model, event: events.Event, now: float) -> Step:  # noqa: C901  a table of events
    """Decide what follows from one event.

    INVARIANT: a worker is asked to stop only when it holds no request.
    INVARIANT: at most one worker is starting, running or stopping at any time.

    Returns:
        the next state, and effects to be performed in order.
    """
    match event:
        case events.WorkArrived():
            return _wake(_with(model, has_work=True), now)
        case events.WorkFinished():
            return _rest(_with(model, has_work=False), now)
        case events.LoadAsked():
            return _load_asked(model, now)
        case events.UnloadAsked():
            return _unload_asked(model)
        case events.PinAsked():
            return _load_asked(_with(model, pinned=True), now)
        case events.UnpinAsked():
            return _rest(_with(model, pinned=False), now)
        case events.SettingsChanged(idle_timeout_s):
            return _rest(_with(model, idle_timeout_s=idle_timeout_s), now)
        case events.CloseAsked():
            return _rest(_with(model, closing=True), now)
        case events.KillAsked():
            return _kill(model)
        case events.IdleDue():
            return _idle_due(model, now)
        case events.WorkerReady(worker) if worker == model.worker:
            return _ready(model, now)
        case events.LoadFailed(worker, error) if worker == model.worker:
            return _load_failed(model, error, now)
        case events.Drained(worker) if worker == model.worker and model.phase is Phase.DRAINING:
            return _stop(model, "unload")
        case events.WorkerExited(worker, error) if worker == model.worker:
            return _exited(model, error, now)
        case _:
            return model, ()  # news of an earlier worker


def _with(model: Model, **changes: object) -> Model:
    return msgspec.structs.replace(model, **changes)


def _start(model: Model) -> Step:
    number = model.worker + 1
    model = _with(model, phase=Phase.LOADING, worker=number, load_wanted=False)
    return model, (effects.StartWorker(number),)


def _stop(model: Model, reason: str) -> Step:
    model = _with(model, phase=Phase.STOPPING, unload_wanted=False)
    return model, (effects.CloseDispatch(), effects.StopWorker(model.worker, reason))


def _wake(model: Model, now: float) -> Step:
    match model.phase:
        case Phase.IDLE:
            return _start(model)
        case Phase.FAILED if now < model.retry_at and model.last_error is not None:
            return model, (
                effects.RefuseQueued(_not_before(model.last_error, model.retry_at - now)),
            )
        case Phase.FAILED:
            return _start(model)
        case _:
            return model, ()


def _not_before(error: SnoozeError, wait_s: float) -> SnoozeError:
    return type(error).restated(error, retry_after_s=wait_s)


def _rest(model: Model, now: float) -> Step:
    """Nothing may be left to do: leave if the model is closing, else let the idle time begin."""
    if model.has_work:
        return model, ()
    match model.phase:
        case Phase.IDLE | Phase.FAILED if model.closing:
            return _with(model, phase=Phase.CLOSED), (effects.AnswerUnloads(), effects.Finish())
        case Phase.LOADING | Phase.READY if model.closing:
            return _stop(model, "close")
        case Phase.READY if model.idle_timeout_s and not model.pinned:
            idle_at = now + model.idle_timeout_s
            return _with(model, idle_at=idle_at), (effects.SetIdleTimer(idle_at),)
        case _:
            return model, ()


def _load_asked(model: Model, now: float) -> Step:
    """An explicit load is somebody's decision: it does not wait for a backoff to end."""
    match model.phase:
        case Phase.IDLE | Phase.FAILED:
            return _start(model)
        case Phase.READY:
            model, more = _rest(model, now)
            return model, (*more, effects.AnswerLoads())
        case Phase.LOADING:
            return _with(model, unload_wanted=False), (effects.AnswerUnloads(),)
        case _:
            return _with(model, load_wanted=True), ()


def _unload_asked(model: Model) -> Step:
    match model.phase:
        case Phase.READY if model.has_work:
            return _with(model, phase=Phase.DRAINING), (effects.DrainDispatch(),)
        case Phase.READY:
            return _stop(model, "unload")
        case Phase.LOADING:
            return _with(model, unload_wanted=True), ()
        case Phase.FAILED:
            return _with(model, phase=Phase.IDLE, failures=0), (effects.AnswerUnloads(),)
        case Phase.DRAINING | Phase.STOPPING:
            return _with(model, load_wanted=False), ()
        case _:
            return model, (effects.AnswerUnloads(),)


def _kill(model: Model) -> Step:
    model = _with(model, closing=True, killed=True)
    if model.phase in (Phase.IDLE, Phase.FAILED, Phase.CLOSED):
        return _close_refusing(model)
    return _with(model, phase=Phase.STOPPING), (effects.KillWorker(model.worker),)


def _close_refusing(model: Model) -> Step:
    refusal = ShuttingDown("the server stopped before this request was answered")
    model = _with(model, phase=Phase.CLOSED)
    return model, (
        effects.CloseDispatch(),
        effects.RefuseQueued(refusal),
        effects.AnswerUnloads(),
        effects.Finish(),
    )


def _idle_due(model: Model, now: float) -> Step:
    # The timer only advises: work or a pin that came in the meantime decides.
    if model.phase is not Phase.READY or model.has_work or model.pinned or not model.idle_timeout_s:
        return model, ()
    if now < model.idle_at:
        return model, (effects.SetIdleTimer(model.idle_at),)
    return _stop(model, "idle")


def _ready(model: Model, now: float) -> Step:
    if model.phase is not Phase.LOADING:
        return model, ()
    model = _with(model, phase=Phase.READY, failures=0, last_error=None)
    if model.unload_wanted:
        model, more = _unload_asked(_with(model, unload_wanted=False))
    else:
        model, more = _rest(model, now)
    return model, (effects.OpenDispatch(), effects.AnswerLoads(), *more)


def _load_failed(model: Model, error: SnoozeError, now: float) -> Step:
    failures = model.failures + 1
    wait_s = backoff_s(failures)
    model = _with(
        model,
        phase=Phase.FAILED,
        failures=failures,
        retry_at=now + wait_s,
        last_error=error,
        unload_wanted=False,
    )
    refusal = _not_before(error, wait_s)
    # Refusing empties the queue, which brings `WorkFinished`, which closes a model that is closing.
    model, more = _rest(model, now)
    return model, (
        effects.RefuseQueued(refusal),
        effects.AnswerLoads(refusal),
        effects.AnswerUnloads(),
        *more,
    )


def _exited(model: Model, error: SnoozeError | None, now: float) -> Step:
    if model.killed:
        return _close_refusing(model)
    if error is not None:
        model = _with(model, last_error=error)
    idle = _with(model, phase=Phase.IDLE, unload_wanted=False)
    kept_warm = model.load_wanted or (model.pinned and error is not None)
    wanted = model.has_work or (kept_warm and not model.closing)
    if wanted:
        idle, more = _start(idle)
    else:
        idle, more = _rest(idle, now)
    return idle, (effects.CloseDispatch(), effects.AnswerUnloads(), *more)
