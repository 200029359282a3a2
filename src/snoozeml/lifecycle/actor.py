"""One model's only writer: what happens becomes events, what the machine decides gets done."""

import asyncio
import logging
import time
from collections import deque
from typing import NamedTuple, TypeVar

import msgspec

from snoozeml.config.schema import ModelConfig
from snoozeml.core.plan import Plan, WorkerFailure, WorkerSpec
from snoozeml.core.request import InferenceRequest
from snoozeml.errors import Internal, ModelFailed, ShuttingDown, SnoozeError, WorkerCrashed
from snoozeml.lifecycle import effects, events
from snoozeml.lifecycle.cpu import engine_threads
from snoozeml.lifecycle.dispatch import Dispatch, Lane, Ticket
from snoozeml.lifecycle.machine import Model, Phase, step
from snoozeml.lifecycle.memory import proportional_bytes
from snoozeml.lifecycle.plans import PlanStore
from snoozeml.lifecycle.process import Launcher, describe_exit
from snoozeml.lifecycle.waiting import Waiting
from snoozeml.lifecycle.worker import Worker
from snoozeml.telemetry.metrics import Totals
from snoozeml.wire.frames import Frame, Kind

_log = logging.getLogger("snoozeml.model")

T = TypeVar("T")


class Surroundings(NamedTuple):
    """What every actor shares.

    Attributes:
        tasks: where effects that take time run; an actor never outlives it.
        cores: how many a worker's engine may keep busy.
    """

    plans: PlanStore
    launcher: Launcher
    tasks: asyncio.TaskGroup
    totals: Totals
    cores: int


class ModelActor:
    """Owns one model: its state, its queue, its worker.

    Everything here runs on the event loop's thread. Nothing but `_handle` assigns the state.
    """

    def __init__(self, config: ModelConfig, around: Surroundings) -> None:
        self.config = config
        self.plan: Plan | None = around.plans.known(config.path, config.format)
        self.loads = 0
        self.cold_start_s: float | None = None
        self.last_accessed: float | None = None
        self._around = around
        self._state = Model(idle_timeout_s=config.idle_timeout_secs)
        self._since = time.monotonic()
        self._events: deque[events.Event] = deque()
        self._handling = False
        self._dispatch = Dispatch(
            config.max_queue,
            on_work_arrived=lambda: self._handle(events.WorkArrived()),
            on_work_finished=lambda: self._handle(events.WorkFinished()),
            on_drained=lambda: self._handle(events.Drained(self._state.worker)),
        )
        self._worker: Worker | None = None
        self._starting: asyncio.Task[None] | None = None
        self._asked_to_leave = False
        self._freed_bytes = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._loads_asked = Waiting[None]()
        self._unloads_asked = Waiting[int]()
        self._finished = asyncio.get_running_loop().create_future()

    # What others see

    @property
    def public_state(self) -> str:
        """The state that clients know: idle, loading, ready or busy."""
        match self._state.phase:
            case Phase.LOADING:
                return "loading"
            case Phase.READY | Phase.DRAINING:
                return "busy" if self._dispatch.outstanding else "ready"
            case _:
                return "idle"

    @property
    def pinned(self) -> bool:
        return self._state.pinned

    @property
    def last_error(self) -> SnoozeError | None:
        return self._state.last_error

    @property
    def queue_depth(self) -> int:
        """Requests that wait in the daemon, beyond those that the worker holds."""
        return self._dispatch.queue_depth

    @property
    def replicas(self) -> int:
        return 1 if self._worker is not None else 0

    @property
    def device(self) -> str:
        """The device that serves, or the one that was asked for while nothing is loaded."""
        return self._worker.ready.device if self._worker is not None else self.config.device

    def memory_bytes(self) -> int:
        return (proportional_bytes(self._worker.pid) or 0) if self._worker is not None else 0

    # What others ask

    def submit(self, request: InferenceRequest) -> Ticket:
        """Accept a request, and wake the model if need be.

        Raises:
            Overloaded: the queue is full.
        """
        self.last_accessed = request.arrived_at
        loads_before = self._state.worker
        ticket = self._dispatch.submit(request)
        ticket.woke_model = self._state.worker != loads_before
        return ticket

    async def load(self) -> None:
        """Return when the model is ready.

        Raises:
            SnoozeError: why it could not be loaded.
        """
        await self._ask(events.LoadAsked(), self._loads_asked)

    async def pin(self) -> None:
        """Keep the model loaded from now on; return when it is ready.

        Raises:
            SnoozeError: why it could not be loaded; then it is as little pinned as before.
        """
        was_pinned = self.pinned
        try:
            await self._ask(events.PinAsked(), self._loads_asked)
        except SnoozeError:
            if not was_pinned:
                self.unpin()
            raise

    def pin_nowait(self) -> None:
        self._handle(events.PinAsked())

    def unpin(self) -> None:
        self._handle(events.UnpinAsked())

    async def unload(self) -> int:
        """Let the model finish what it holds and leave; return when its process is gone.

        Returns:
            bytes of memory that were given back; 0 when nothing was loaded.
        """
        return await self._ask(events.UnloadAsked(), self._unloads_asked)

    def reconfigure(self, config: ModelConfig) -> None:
        """Take new settings. What a worker was started with makes it leave, to be started anew."""
        before, self.config = self.config, config
        self._dispatch.max_queue = config.max_queue
        self._handle(events.SettingsChanged(config.idle_timeout_secs))
        if config.pinned != before.pinned:
            self._handle(events.PinAsked() if config.pinned else events.UnpinAsked())
        plan = self._around.plans.known(config.path, config.format)
        if plan != self.plan or _worker_settings(config) != _worker_settings(before):
            self.plan = plan
            self._handle(events.UnloadAsked())
            if self._state.pinned:
                self._handle(events.LoadAsked())

    async def close(self) -> None:
        """Answer what has been accepted, let the worker leave, and end.

        Cancelling this leaves the actor closing.
        """
        self._handle(events.CloseAsked())
        await asyncio.shield(self._finished)

    def kill(self) -> None:
        """End at once, whatever the worker does; what has been accepted is refused."""
        self._handle(events.KillAsked())

    async def _ask(self, event: events.Event, waiting: Waiting[T]) -> T:
        answer = waiting.join()
        self._handle(event)
        return await answer

    # Events and effects

    def _handle(self, event: events.Event) -> None:
        """Take one step; events that its effects cause are taken after it, in order."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                now = time.monotonic()
                before = self._state.phase
                self._state, follow_up = step(self._state, self._events.popleft(), now)
                if self._state.phase is not before:
                    self._log_transition(before, now)
                for effect in follow_up:
                    self._perform(effect)
        finally:
            self._handling = False

    def _perform(self, effect: effects.Effect) -> None:  # noqa: C901  a table of effects
        match effect:
            case effects.SetIdleTimer(at):
                self._set_idle_timer(at)
            case effects.StartWorker(number):
                self._starting = self._around.tasks.create_task(self._start(number))
            case effects.StopWorker(_, reason):
                self._stop(reason)
            case effects.KillWorker():
                self._kill()
            case effects.OpenDispatch():
                assert self._worker is not None
                window = max(2, 2 * self.config.max_batch_size)
                self._dispatch.open(Lane(self._worker.channel, window))
            case effects.DrainDispatch():
                self._dispatch.drain()
            case effects.CloseDispatch():
                self._dispatch.close()
            case effects.RefuseQueued(error):
                self._dispatch.refuse(error)
            case effects.AnswerLoads(error):
                self._answer_loads(error)
            case effects.AnswerUnloads():
                self._answer_unloads()
            case effects.Finish():
                self._finish()

    async def _start(self, number: int) -> None:
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(self.config.load_timeout_secs):
                worker = await self._load(number)
        except asyncio.CancelledError:
            self._starting = None
            self._handle(events.WorkerExited(number))
        except Exception as error:
            self._starting = None
            self._handle(events.LoadFailed(number, self._load_error(error)))
        else:
            self._starting = None
            self._worker = worker
            self._asked_to_leave = False
            self.loads += 1
            self.cold_start_s = time.monotonic() - started_at
            self._around.tasks.create_task(self._watch(number, worker))
            self._handle(events.WorkerReady(number))

    async def _load(self, number: int) -> Worker:
        config, around = self.config, self._around
        self.plan = await around.plans.ensure(config.path, config.format)
        spec = WorkerSpec(
            model_id=config.id,
            plan=self.plan,
            device=config.device,
            max_batch_size=config.max_batch_size,
            max_batch_delay_s=config.max_batch_delay_ms / 1000,
            batching=config.batching,
            threads=engine_threads(config.threads, self.plan, around.cores),
        )
        return await Worker.start(around.launcher, spec, self._receive)

    def _load_error(self, error: Exception) -> SnoozeError:
        if isinstance(error, SnoozeError):
            return error
        if isinstance(error, TimeoutError):
            limit_s = self.config.load_timeout_secs
            return ModelFailed(
                f"model {self.config.id} was not ready within {limit_s:g} s (load_timeout_secs)"
            )
        _log.exception("loading failed", extra={"fields": {"model": self.config.id}})
        return Internal(f"loading model {self.config.id} failed; the server's log says why")

    async def _watch(self, number: int, worker: Worker) -> None:
        status = await worker.exited
        self._worker = None
        error = None
        if not self._asked_to_leave:
            error = WorkerCrashed(f"the worker of model {self.config.id} {describe_exit(status)}")
            _log.error(
                "worker died",
                extra={
                    "fields": {
                        "model": self.config.id,
                        "pid": worker.pid,
                        "how": describe_exit(status),
                        "last_output": list(worker.last_output),
                    }
                },
            )
        self._handle(events.WorkerExited(number, error))

    def _stop(self, reason: str) -> None:
        if self._worker is None:
            assert self._starting is not None
            self._starting.cancel()  # it reports the exit when it has cleaned up
            return
        if reason == "idle":
            self._around.totals.deallocations["idle"] += 1
        self._asked_to_leave = True
        self._freed_bytes = self.memory_bytes()
        self._around.tasks.create_task(self._worker.stop())

    def _kill(self) -> None:
        self._asked_to_leave = True
        if self._starting is not None:
            self._starting.cancel()
        if self._worker is not None:
            self._worker.kill()

    def _receive(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.kind == Kind.NOTICE:
                self._log_notice(frame)
            else:
                self._around.totals.batches += frame.codec
                self._dispatch.receive(frame)
        self._dispatch.flow()

    def _set_idle_timer(self, at: float) -> None:
        timer = self._idle_timer
        if timer is not None and timer.when() <= at:
            return  # it rings before, and what it means is decided then: no re-arming per request
        if timer is not None:
            timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_at(at, self._ring_idle)

    def _ring_idle(self) -> None:
        self._idle_timer = None
        self._handle(events.IdleDue())

    def _answer_loads(self, error: SnoozeError | None) -> None:
        if error is None:
            self._loads_asked.answer(None)
        else:
            self._loads_asked.refuse(error)

    def _answer_unloads(self) -> None:
        freed_bytes, self._freed_bytes = self._freed_bytes, 0
        self._unloads_asked.answer(freed_bytes)

    def _finish(self) -> None:
        self._loads_asked.refuse(ShuttingDown(f"model {self.config.id} is going away"))
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self._finished.done():
            self._finished.set_result(None)

    def _log_transition(self, before: Phase, now: float) -> None:
        fields: dict[str, object] = {
            "model": self.config.id,
            "state": f"{before.value}→{self._state.phase.value}",
            "after_s": round(now - self._since, 3),
        }
        if self._state.phase is Phase.FAILED and self._state.last_error is not None:
            fields["error"] = self._state.last_error.message
        self._since = now
        _log.info("transition", extra={"fields": fields})

    def _log_notice(self, frame: Frame) -> None:
        notice = msgspec.json.decode(frame.body, type=WorkerFailure)
        _log.warning("%s", notice.message, extra={"fields": {"model": self.config.id}})


def _worker_settings(config: ModelConfig) -> tuple[object, ...]:
    """The settings that a worker gets when it starts, and keeps."""
    return (
        config.path,
        config.device,
        config.max_batch_size,
        config.max_batch_delay_ms,
        config.batching,
        config.threads,
    )
