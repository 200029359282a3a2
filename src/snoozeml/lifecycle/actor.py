"""One model's only writer: what happens becomes events, what the machine decides gets done."""

import asyncio
import logging
import time
from collections import deque
from typing import TypeVar

from snoozeml.config.schema import ModelConfig
from snoozeml.core.request import InferenceRequest, InferenceResult
from snoozeml.errors import ModelLoading, ShuttingDown, SnoozeError, WorkerCrashed
from snoozeml.lifecycle import effects, events
from snoozeml.lifecycle.alarm import Alarm
from snoozeml.lifecycle.crew import Crew, Surroundings, worker_settings
from snoozeml.lifecycle.dispatch import Dispatch
from snoozeml.lifecycle.failures import failure_in
from snoozeml.lifecycle.hangs import HangWatch
from snoozeml.lifecycle.lane import Lane
from snoozeml.lifecycle.limits import Limits
from snoozeml.lifecycle.machine import step
from snoozeml.lifecycle.model import Model, Phase, may_leave_at
from snoozeml.lifecycle.residency import Resident
from snoozeml.lifecycle.routing import routing
from snoozeml.lifecycle.thrashing import Evictions
from snoozeml.lifecycle.ticket import Ticket
from snoozeml.lifecycle.transitions import log_transition
from snoozeml.lifecycle.waiting import Waiting
from snoozeml.telemetry.statistics import ModelStatistics
from snoozeml.wire.frames import Frame, Kind

_log = logging.getLogger("snoozeml.model")

T = TypeVar("T")

_NO_ANSWERS = frozenset((Kind.NOTICE, Kind.USED))

_ASLEEP = (Phase.IDLE, Phase.FAILED, Phase.STOPPING)  # on its way out, it must come back

_ANSWER_S = 1.0  # for the load's own time limit to speak first


class ModelActor:
    """Owns one model: its state, its queue, its workers.

    Everything here runs on the event loop's thread. Nothing but `tell` assigns the state.
    """

    def __init__(self, config: ModelConfig, around: Surroundings) -> None:
        self.config = config
        self.last_accessed: float | None = None
        self.statistics = ModelStatistics()
        self.crew = Crew(config, around, self)
        self.dispatch = Dispatch(
            self,
            max_queue=config.max_queue,
            crowd=config.autoscale_queue_threshold,
            choose=routing(config.routing_strategy),
        )
        self._around = around
        self._state = Model(limits=Limits.of(config))
        self._since = time.monotonic()
        self._events: deque[events.Event] = deque()
        self._handling = False
        self._lanes: dict[int, Lane] = {}
        self._alarm = Alarm(lambda: self.tell(events.TimerRang(self.dispatch.needed_at)))
        self._hangs = HangWatch(
            self._lanes, self._has_work, self._end_hung_worker, config.exec_timeout_secs
        )
        self._loads_asked = Waiting[None]()
        self._unloads_asked = Waiting[int]()
        self._evictions = Evictions(config.id, around.totals)
        self._finished = asyncio.get_running_loop().create_future()

    # What others see

    @property
    def public_state(self) -> str:
        """The state that clients know: idle, loading, ready or busy."""
        match self._state.phase:
            case Phase.LOADING:
                return "loading"
            case Phase.READY | Phase.DRAINING:
                return "busy" if self.dispatch.outstanding else "ready"
            case _:
                return "idle"

    @property
    def has_failed(self) -> bool:
        """It could not be loaded, and refuses for a while."""
        return self._state.phase is Phase.FAILED

    @property
    def pinned(self) -> bool:
        return self._state.pinned

    @property
    def last_error(self) -> SnoozeError | None:
        return self._state.last_error

    @property
    def waits_for(self) -> str | None:
        """Why its load has to wait; None: it does not."""
        return self.dispatch.blocked_by.message if self.dispatch.blocked_by else None

    def resident(self) -> Resident | None:
        """What the model takes of the common memory; None while it takes nothing."""
        holds = self.crew.holds()
        if holds is None:
            return None
        return Resident(
            model_id=self.config.id,
            holds=holds,
            used_at=self.last_accessed or 0.0,
            may_leave_at=may_leave_at(self._state),
            leaving=self._state.phase is Phase.STOPPING,
            stays=self.pinned and not self._state.closing,
        )

    # What others ask

    def submit(self, request: InferenceRequest) -> Ticket:
        """Accept a request, and wake the model if need be.

        Raises:
            Overloaded: the queue is full.
            ModelLoading: the model is not ready, and the request does not want to wait for it.
            WorkerCrashed: a request like this one has killed workers.
        """
        self.last_accessed = request.arrived_at
        before = self._state
        try:
            if request.fail_fast and before.phase is not Phase.READY:
                self._wake_for_later(request)
            ticket = self.dispatch.submit(request)
        except SnoozeError:
            self.statistics.failed.add(time.monotonic() - request.arrived_at)
            raise
        ticket.woke_model = not before.has_work and before.phase in _ASLEEP
        return ticket

    async def load(self) -> None:
        """Return when the model is ready.

        Raises:
            SnoozeError: why it could not be loaded.
        """
        await self._ask_to_load(events.LoadAsked())

    def load_nowait(self) -> None:
        """Start loading for somebody who will come back later."""
        wish = self._loads_asked.join()
        wish.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody asks
        loop = asyncio.get_running_loop()
        loop.call_later(self.config.load_timeout_secs, wish.cancel)  # it does not wait for ever
        self.tell(events.LoadAsked())

    async def pin(self) -> None:
        """Keep the model loaded from now on; return when it is ready.

        Raises:
            SnoozeError: why it could not be loaded; then, and when this is cancelled, it is as
                little pinned as before.
        """
        was_pinned = self.pinned
        try:
            await self._ask_to_load(events.PinAsked())
        except (SnoozeError, asyncio.CancelledError):
            if not was_pinned:
                self.unpin()
            raise

    def pin_nowait(self) -> None:
        self.tell(events.PinAsked())

    def unpin(self) -> None:
        self.tell(events.UnpinAsked())

    async def unload(self) -> int:
        """Let the model finish what it holds and leave; return when its processes are gone.

        Returns:
            bytes of memory that were given back; 0 when nothing was loaded.
        """
        return await self._ask(events.UnloadAsked(), self._unloads_asked)

    def evict(self, reason: str) -> None:
        """Leave, if that disturbs nobody."""
        self.tell(events.EvictAsked(reason))

    def reconfigure(self, config: ModelConfig) -> bool:
        """Take new settings; workers that were started with others leave, to be started anew.

        A model that has failed is tried anew, too: whatever was wrong with its files may be mended.

        Returns:
            whether the settings or the model itself are others than before.
        """
        before, self.config, self.crew.config = self.config, config, config
        self.dispatch.max_queue = config.max_queue
        self.dispatch.crowd = config.autoscale_queue_threshold
        self._hangs.limit_s = config.exec_timeout_secs
        if config.routing_strategy != before.routing_strategy:
            self.dispatch.choose = routing(config.routing_strategy)
        self.tell(events.LimitsChanged(Limits.of(config)))
        plan = self._around.plans.current(config.origin, self.crew.plan)
        is_other_model = plan != self.crew.plan
        self.crew.plan = plan
        if is_other_model or worker_settings(config) != worker_settings(before) or self.has_failed:
            self.tell(events.SettingsChanged())
        if config.pinned != before.pinned:
            self.tell(events.PinAsked() if config.pinned else events.UnpinAsked())
        return is_other_model or config != before

    async def close(self) -> None:
        """Answer what has been accepted, let the workers leave, and end.

        Cancelling this leaves the actor closing.
        """
        self.tell(events.CloseAsked())
        await asyncio.shield(self._finished)

    def kill(self) -> None:
        """End at once, whatever the workers do; what has been accepted is refused."""
        self.tell(events.KillAsked())

    async def _ask(self, event: events.Event, waiting: Waiting[T]) -> T:
        answer = waiting.join()
        self.tell(event)
        return await answer

    async def _ask_to_load(self, event: events.Event) -> None:
        """Ask, and wait for room no longer than a load may take."""
        try:
            async with asyncio.timeout(self.config.load_timeout_secs + _ANSWER_S):
                await self._ask(event, self._loads_asked)
        except TimeoutError:
            raise self.dispatch.blocked_by or self.crew.too_slow() from None
        finally:
            self._around.steward.look_again()

    def _wake_for_later(self, request: InferenceRequest) -> None:
        if self._state.phase is Phase.FAILED and time.monotonic() < self._state.retry_at:
            return  # it is refused with the reason, like every other request
        if self._state.phase is not Phase.LOADING:
            self.load_nowait()
        raise ModelLoading(
            f"model {request.model_id} is currently loading",
            retry_after_s=self.crew.cold_start_s,
        )

    # What the dispatch reports

    def answered(self, ticket: Ticket, result: InferenceResult) -> None:
        if ticket.woke_model:
            result.cold_start_s = self.crew.cold_start_s
        took_s = time.monotonic() - ticket.request.arrived_at
        self.statistics.answered(took_s, result.queue_s, result.run_s)

    def failed(self, ticket: Ticket) -> None:
        self.statistics.failed.add(time.monotonic() - ticket.request.arrived_at)

    def work_arrived(self) -> None:
        self.tell(events.WorkArrived())
        self._hangs.watch()

    def work_finished(self) -> None:
        self.tell(events.WorkFinished())

    def crowded(self) -> None:
        self.tell(events.Crowded())

    def ran_out_of_memory(self, number: int) -> None:
        self.crew.note_out_of_memory(number)
        self.tell(events.RanOutOfMemory(number))

    def drained(self, number: int) -> None:
        self.tell(events.Drained(number))

    # What the crew asks and reports

    def receive(self, number: int, frames: list[Frame]) -> None:
        lane = self._lanes.get(number)
        if lane is None:
            return  # its requests are somebody else's by now
        lane.moved_at = time.monotonic()
        for frame in frames:
            if frame.kind in _NO_ANSWERS:
                self._hear(number, frame)
            else:
                if frame.codec:  # the first answer since a run
                    self.statistics.ran(frame.codec, frame.count, frame.t1)
                self.dispatch.receive(lane, frame)
        self.dispatch.flow()

    def wait_for_room(self, why: SnoozeError | None) -> None:
        self.dispatch.blocked_by = why

    def refuse_loads(self, why: SnoozeError) -> None:
        self._loads_asked.refuse(why.again())

    def needs_worker(self) -> bool:
        state = self._state
        return state.has_work or state.pinned or bool(self._loads_asked)

    def has_answered(self, number: int) -> bool:
        lane = self._lanes.get(number)
        return lane is not None and lane.answered > 0

    def _has_work(self) -> bool:
        return self._state.has_work

    # Events and effects

    def tell(self, event: events.Event) -> None:
        """Take one step; events that its effects cause are taken after it, in order."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                now = time.monotonic()
                before, taken = self._state, self._events.popleft()
                self._state, follow_up = step(before, taken, now)
                if self._state.phase is not before.phase:
                    log_transition(self.config.id, before, taken, self._state, now - self._since)
                    self._since = now
                if self._around.steward.is_waited_for and self._state is not before:
                    self._around.steward.look_again()
                for effect in follow_up:
                    self._perform(effect)
        finally:
            self._handling = False

    def _perform(self, effect: effects.Effect) -> None:  # noqa: C901  a table of effects
        match effect:
            case effects.SetTimer(at):
                self._alarm.ring_by(at)
            case effects.StartWorker(number):
                self._evictions.starting()
                self.crew.start(number)
            case effects.StopWorker(number, reason):
                self._evictions.stopping(reason)
                self.crew.stop(number)
            case effects.KillWorker(number):
                self.crew.kill(number)
            case effects.OpenLane(number):
                self._open_lane(number)
            case effects.DrainLane(number, finish_queue):
                self.dispatch.drain(number, finish_queue=finish_queue)
            case effects.CloseLane(number, blame):
                lane = self._lanes.pop(number, None)
                if lane is not None and lane.answered:
                    self.crew.note_served(number)
                self.dispatch.close(number, blame)
            case effects.RefuseQueued(error):
                self.dispatch.refuse(error)
            case effects.MakeRoom():
                self._around.totals.load_retries += 1
                self._around.steward.evict_one(self.config.id, self.crew.needs())
            case effects.AnswerLoads(error) if error is not None:
                self._loads_asked.refuse(error)
            case effects.AnswerLoads():
                self._loads_asked.answer(None)
            case effects.AnswerUnloads():
                freed_bytes, self.crew.freed_bytes = self.crew.freed_bytes, 0
                self._unloads_asked.answer(freed_bytes)
            case effects.Finish():
                self._finish()

    def _open_lane(self, number: int) -> None:
        window = max(2, 2 * self.config.max_batch_size)
        lane = self._lanes[number] = Lane(number, self.crew.worker(number).channel, window)
        self.dispatch.open(lane)

    def _end_hung_worker(self, lane: Lane) -> None:
        hung = WorkerCrashed(
            f"the worker of model {self.config.id} gave no answer for {self._hangs.limit_s:g} s "
            "(exec_timeout_secs) and was ended"
        )
        self.crew.kill(lane.number, because=hung)

    def _finish(self) -> None:
        self._loads_asked.refuse(ShuttingDown(f"model {self.config.id} is going away"))
        self._alarm.cancel()
        self._hangs.close()
        if not self._finished.done():
            self._finished.set_result(None)

    def _hear(self, number: int, frame: Frame) -> None:
        if frame.kind == Kind.USED:
            self.crew.let_pack(number)
            return
        notice = failure_in(frame.body)
        _log.warning("%s", notice.message, extra={"fields": {"model": self.config.id}})
