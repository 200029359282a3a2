"""What happens to a model: the pure half of the lifecycle.

`step(model, event, now)` says which state follows and what must be done; it does nothing itself.
The actor (`lifecycle.actor`) is the only caller that acts, and the only writer of a model's state.

A model is served by replicas, each a worker process of its own, and each on one way:

    STARTING ──WorkerReady──▶ SERVING ──excess, UnloadAsked──▶ DRAINING ──Drained──▶ STOPPING
        └──LoadFailed──▶ gone    └──idle, EvictAsked, CloseAsked──────────────────────▲ └──▶ gone

What the model is follows from its replicas: ready while one serves, loading while the first one
starts, idle without any. A load that fails leaves it failed: it refuses until `retry_at`, then
loads again.
"""

from typing import Final

import msgspec

from snoozeml.errors import ModelFailed, OutOfMemory, ShuttingDown, SnoozeError
from snoozeml.lifecycle import effects, events
from snoozeml.lifecycle.model import Model, Phase, Replica, Stage, may_leave_at
from snoozeml.lifecycle.residency import NeverFits

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_LONGEST_S: Final = 60.0

# A worker that dies before its first answer may have met bad luck; after so many in a row the model
# is taken to be broken, and backs off like one that does not load.
_EARLY_CRASHES_TOLERATED: Final = 2


Step = tuple[Model, tuple[effects.Effect, ...]]


def backoff_s(failures: int) -> float:
    """How long to refuse after this many failures in a row."""
    return float(min(BACKOFF_LONGEST_S, BACKOFF_FIRST_S * 2 ** min(failures - 1, 16)))


def step(model: Model, event: events.Event, now: float) -> Step:  # noqa: C901  a table of events
    """Decide what follows from one event.

    INVARIANT: a worker is asked to stop only when it holds no request.
    INVARIANT: at most one worker of a model is starting at any time.

    Returns:
        the next state, and effects to be performed in order.
    """
    match event:
        case events.WorkArrived():
            return _wake(_with(model, has_work=True), now)
        case events.WorkFinished():
            return _rest(_with(model, has_work=False), now)
        case events.Crowded():
            return _grow(model, now)
        case events.LoadAsked():
            return _load_asked(model, now)
        case events.UnloadAsked():
            return _unload_asked(model, now)
        case events.EvictAsked(reason):
            return _evict_asked(model, reason, now)
        case events.PinAsked():
            return _load_asked(_with(model, pinned=True), now)
        case events.UnpinAsked():
            return _rest(_with(model, pinned=False), now)
        case events.SettingsChanged():
            return _renew(model, now)
        case events.LimitsChanged(limits):
            return _rest(_with(model, limits=limits), now)
        case events.CloseAsked():
            return _rest(_with(model, closing=True), now)
        case events.KillAsked():
            return _kill(model, now)
        case events.TimerRang(needed_at):
            return _timer_rang(model, needed_at, now)
        case events.WorkerReady(number):
            return _ready(model, number, now)
        case events.LoadFailed(number, error):
            return _load_failed(model, number, error, now)
        case events.RanOutOfMemory(number):
            return _ran_out_of_memory(model, number, now)
        case events.Drained(number):
            return _drained(model, number, now)
        case events.WorkerExited(number):
            return _exited(model, event, now)
        case _:
            raise TypeError(f"not an event: {event!r}")


def _with(model: Model, **changes: object) -> Model:
    return msgspec.structs.replace(model, **changes)


def _start(model: Model, now: float) -> Step:
    number = model.last_number + 1
    replicas = (*model.replicas, Replica(number, Stage.STARTING, now))
    model = _with(model, replicas=replicas, last_number=number, load_wanted=False, failed=False)
    return model, (effects.StartWorker(number),)


def _stop_all(model: Model, reason: str, now: float) -> Step:
    """Stop every replica that starts or serves; none holds a request."""
    todo: list[effects.Effect] = []
    for replica in model.at(Stage.STARTING, Stage.SERVING, Stage.DRAINING):
        model = model.moved(replica.number, Stage.STOPPING, now)
        todo += [effects.CloseLane(replica.number), effects.StopWorker(replica.number, reason)]
    return _with(model, unload_wanted=False), tuple(todo)


def _drain_all(model: Model, now: float) -> Step:
    """Let the serving replicas finish what has been accepted; one that starts is not needed."""
    todo: list[effects.Effect] = []
    for replica in model.at(Stage.STARTING):
        model = model.moved(replica.number, Stage.STOPPING, now)
        todo.append(effects.StopWorker(replica.number, "unload"))
    for replica in model.at(Stage.SERVING):
        model = model.moved(replica.number, Stage.DRAINING, now)
        todo.append(effects.DrainLane(replica.number, finish_queue=True))
    return _with(model, unload_wanted=False), tuple(todo)


def _wake(model: Model, now: float) -> Step:
    match model.phase:
        case Phase.IDLE:
            return _start(model, now)
        case Phase.FAILED if now < model.retry_at and model.last_error is not None:
            return model, (effects.RefuseQueued(_not_before(model, now)),)
        case Phase.FAILED:
            return _start(model, now)
        case _:
            return model, ()


def _not_before(model: Model, now: float) -> SnoozeError:
    assert model.last_error is not None
    error = model.last_error
    return type(error).restated(error, retry_after_s=model.retry_at - now)


def _rest(model: Model, now: float) -> Step:
    """Nothing may be left to do: leave if the model is closing, else let the idle time begin."""
    if model.has_work:
        return model, ()
    match model.phase:
        case Phase.IDLE | Phase.FAILED if model.closing:
            return _with(model, closed=True), (effects.AnswerUnloads(), effects.Finish())
        case Phase.LOADING | Phase.READY if model.closing:
            return _stop_all(model, "close", now)
        case Phase.READY:
            model = _with(model, idle_at=now + model.limits.idle_timeout_s)
            return model, _ring(model, now)
        case _:
            return model, ()


def _sleeps(model: Model) -> bool:
    return model.limits.idle_timeout_s > 0 and not model.pinned


def _grow(model: Model, now: float) -> Step:
    """More wait than the replicas can soon take: add one, if there may be another."""
    full = len(model.replicas) >= model.limits.max_replicas
    if model.phase is not Phase.READY or full or model.at(Stage.STARTING) or now < model.retry_at:
        return model, ()
    return _start(model, now)


def _load_asked(model: Model, now: float) -> Step:
    """An explicit load is somebody's decision: it does not wait for a backoff to end."""
    match model.phase:
        case Phase.IDLE | Phase.FAILED:
            return _start(model, now)
        case Phase.READY:
            model, more = _rest(model, now)
            return model, (*more, effects.AnswerLoads())
        case Phase.LOADING:
            return _with(model, unload_wanted=False), (effects.AnswerUnloads(),)
        case _:
            return _with(model, load_wanted=True), ()


def _unload_asked(model: Model, now: float) -> Step:
    match model.phase:
        case Phase.READY if model.has_work:
            return _drain_all(model, now)
        case Phase.READY:
            return _stop_all(model, "unload", now)
        case Phase.LOADING if model.has_work:
            return _with(model, unload_wanted=True), ()
        case Phase.LOADING:
            model, stopped = _stop_all(model, "unload", now)
            return model, (effects.AnswerLoads(_superseded()), *stopped)
        case Phase.FAILED:
            model = _with(model, failed=False, failures=0, last_error=None)
            return model, (effects.AnswerUnloads(),)
        case Phase.DRAINING | Phase.STOPPING if model.load_wanted:
            return _with(model, load_wanted=False), (effects.AnswerLoads(_superseded()),)
        case Phase.DRAINING | Phase.STOPPING:
            return model, ()
        case _:
            return model, (effects.AnswerUnloads(),)


def _renew(model: Model, now: float) -> Step:
    """Workers that were started with other settings leave; whoever needs one gets another."""
    wanted = model.pinned or model.phase is Phase.LOADING
    todo: tuple[effects.Effect, ...] = ()
    match model.phase:
        case Phase.LOADING:
            model, todo = _drain_all(model, now)
        case Phase.READY | Phase.FAILED:
            model, todo = _unload_asked(model, now)
    if not wanted:
        return model, todo
    model, more = _load_asked(model, now)
    return model, (*todo, *more)


def _superseded() -> SnoozeError:
    return ModelFailed("the model was unloaded again before it was loaded")


def _evict_asked(model: Model, reason: str, now: float) -> Step:
    # Whoever asked looked at this model a moment ago; what it is now decides.
    leave_at = may_leave_at(model)
    if leave_at is None or now < leave_at:
        return model, ()
    return _stop_all(model, reason, now)


def _kill(model: Model, now: float) -> Step:
    model = _with(model, closing=True, killed=True)
    if not model.replicas:
        return _close_refusing(model)
    todo: list[effects.Effect] = []
    for replica in model.replicas:
        model = model.moved(replica.number, Stage.STOPPING, now)
        todo.append(effects.KillWorker(replica.number))
    return model, tuple(todo)


def _close_refusing(model: Model) -> Step:
    refusal = ShuttingDown("the server stopped before this request was answered")
    todo = (effects.RefuseQueued(refusal), effects.AnswerUnloads(), effects.Finish())
    return _with(model, closed=True), todo


def _timer_rang(model: Model, needed_at: float, now: float) -> Step:
    # The timer only advises: work or a pin that came in the meantime decides.
    if model.phase is Phase.FAILED and model.pinned:
        return _start(model, now) if now >= model.retry_at else (model, _retry(model))
    if model.phase is not Phase.READY:
        return model, ()
    if _sleeps(model) and not model.has_work and now >= model.idle_at:
        return _stop_all(model, "idle", now)
    excess_at = _excess_at(model, needed_at)
    if excess_at is None or now < excess_at:
        return model, _ring(model, needed_at)
    newest = model.at(Stage.SERVING)[-1].number
    model = model.moved(newest, Stage.DRAINING, now)
    return model, (effects.DrainLane(newest, finish_queue=False), *_ring(model, now))


def _ring(model: Model, needed_at: float) -> tuple[effects.SetTimer, ...]:
    """Set the timer for whatever the passing of time alone may bring about next."""
    excess_at = _excess_at(model, needed_at)
    ring_at = [model.idle_at] if _sleeps(model) and not model.has_work else []
    ring_at += [] if excess_at is None else [excess_at]
    return (effects.SetTimer(min(ring_at)),) if ring_at else ()


def _excess_at(model: Model, needed_at: float) -> float | None:
    """From when on the newest replica is one too many; None: there is but one.

    Args:
        needed_at: when there was last more work than one replica less would have held.
    """
    serving = model.at(Stage.SERVING)
    if len(serving) < 2 or not model.limits.idle_timeout_s:
        return None
    return max(needed_at, serving[-1].since) + model.limits.idle_timeout_s / len(serving)


def _ready(model: Model, number: int, now: float) -> Step:
    replica = model.replica(number)
    if replica is None or replica.stage is not Stage.STARTING:
        return model, ()  # it is leaving already
    model = model.moved(number, Stage.SERVING, now)
    model = _with(model, retry_at=0.0, room_made=False, last_error=None)
    opened = (effects.OpenLane(number), effects.AnswerLoads())
    if model.unload_wanted:
        model, more = _unload_asked(_with(model, unload_wanted=False), now)
    elif model.has_work:
        more = _ring(model, now)
    else:
        model, more = _rest(model, now)
    return model, (*opened, *more)


def _load_failed(model: Model, number: int, error: SnoozeError, now: float) -> Step:
    """A replica did not come to be; whatever was started for it has been reaped."""
    replica = model.replica(number)
    if replica is None:
        return model, ()
    model = model.without(number)
    if replica.stage is Stage.STOPPING:
        return _after_exit(model, now)  # it was not wanted any more
    ran_out = isinstance(error, OutOfMemory) and not isinstance(error, NeverFits)
    if ran_out and not model.room_made:
        # One neighbour less may be enough; a second time the model is simply too large.
        model, again = _start(_with(model, room_made=True), now)
        return model, (effects.MakeRoom(), *again)
    model = _with(model, last_error=error, room_made=False)
    if model.replicas:  # the others go on serving
        return _after_exit(_with(model, retry_at=now + BACKOFF_FIRST_S), now)
    return _fail(model, now)


def _fail(model: Model, now: float) -> Step:
    """Refuse what waits, and what comes during the backoff."""
    failures = model.failures + 1
    model = _with(
        model,
        failed=True,
        failures=failures,
        retry_at=now + backoff_s(failures),
        unload_wanted=False,
    )
    refusal = _not_before(model, now)
    # Refusing empties the queue, which brings `WorkFinished`, which closes a model that is closing.
    model, more = _rest(model, now)
    refused = (effects.RefuseQueued(refusal), effects.AnswerLoads(refusal), effects.AnswerUnloads())
    return model, (*refused, *more, *(_retry(model) if model.pinned else ()))


def _retry(model: Model) -> tuple[effects.SetTimer]:
    """A pinned model does not wait to be asked: it is tried again when its backoff is over."""
    return (effects.SetTimer(model.retry_at),)


def _drained(model: Model, number: int, now: float) -> Step:
    replica = model.replica(number)
    if replica is None or replica.stage is not Stage.DRAINING:
        return model, ()
    model = model.moved(number, Stage.STOPPING, now)
    return model, (effects.CloseLane(number), effects.StopWorker(number, "unload"))


def _ran_out_of_memory(model: Model, number: int, now: float) -> Step:
    """Start anew with one neighbour less: what could not be allocated is not given back."""
    replica = model.replica(number)
    if replica is None or replica.stage is not Stage.SERVING:
        return model, ()
    keep_warm = model.pinned and len(model.replicas) == 1
    model = model.moved(number, Stage.DRAINING, now)
    model = _with(model, load_wanted=keep_warm or model.load_wanted)
    return model, (effects.MakeRoom(), effects.DrainLane(number, finish_queue=False))


def _exited(model: Model, exited: events.WorkerExited, now: float) -> Step:
    """A worker is gone; what it held is back in the queue."""
    if model.replica(exited.number) is None:
        return model, ()
    model = model.without(exited.number)
    error = exited.error
    closed_lane = effects.CloseLane(exited.number, error if exited.blamed else None)
    if error is None:
        failures = 0 if exited.healthy else model.failures
        model, more = _after_exit(_with(model, failures=failures), now)
        return model, (closed_lane, *more)
    model = _with(model, last_error=error)
    failures = 0 if exited.healthy else model.failures + 1
    if failures > _EARLY_CRASHES_TOLERATED and not model.replicas and not model.killed:
        model, more = _fail(model, now)  # which counts this one
    else:
        model, more = _after_exit(_with(model, failures=failures), now, keep_warm=model.pinned)
    if isinstance(error, OutOfMemory):
        more = (effects.MakeRoom(), *more)
    return model, (closed_lane, *more)


def _after_exit(model: Model, now: float, *, keep_warm: bool = False) -> Step:
    """Once the last replica is gone, start again if anybody waits, else be idle."""
    if model.replicas:
        return _rest(model, now) if model.closing and model.at(Stage.SERVING) else (model, ())
    if model.killed:
        return _close_refusing(model)
    wanted = model.load_wanted or keep_warm
    if model.has_work or (wanted and not model.closing):
        model, more = _start(model, now)
    else:
        model, more = _rest(model, now)
    return _with(model, unload_wanted=False), (effects.AnswerUnloads(), *more)
