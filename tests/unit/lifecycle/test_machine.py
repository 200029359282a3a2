"""The pure half of the lifecycle: what must follow, what must never be, what must come at last.

Some cases pin one transition; the walk drives a whole simulated world in random order and checks
the promises that the actor and every client rely on.
"""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from snoozeml.errors import ModelFailed, OutOfMemory, SnoozeError, WorkerCrashed
from snoozeml.lifecycle import effects, events
from snoozeml.lifecycle.limits import Limits
from snoozeml.lifecycle.machine import BACKOFF_LONGEST_S, backoff_s, step
from snoozeml.lifecycle.model import Model, Phase, Stage, may_leave_at

IDLE_S = 30.0
RESIDENCY_S = 5.0
LIMITS = Limits(idle_timeout_s=IDLE_S, min_residency_s=RESIDENCY_S, max_replicas=3)
ASLEEP = Model(limits=LIMITS)
BROKEN = ModelFailed("the file is broken")
CRASHED = WorkerCrashed("the worker was ended by SIGSEGV")
NO_MEMORY = OutOfMemory("out of memory: 1 GiB")
LATE = 1e6


def follow(model: Model, *happened: events.Event, now: float = 0.0) -> Model:
    for event in happened:
        model, _ = step(model, event, now)
    return model


def todo(model: Model, event: events.Event, now: float = 0.0) -> tuple[effects.Effect, ...]:
    return step(model, event, now)[1]


READY = follow(ASLEEP, events.LoadAsked(), events.WorkerReady(1))
BUSY = follow(READY, events.WorkArrived())
GROWN = follow(BUSY, events.Crowded(), events.WorkerReady(2))


def rang(needed_at: float = 0.0) -> events.TimerRang:
    return events.TimerRang(needed_at)


def test_first_request_starts_exactly_one_worker() -> None:
    model, started = step(ASLEEP, events.WorkArrived(), 0.0)
    assert started == (effects.StartWorker(1),)
    assert todo(model, events.LoadAsked()) == (effects.AnswerUnloads(),)
    assert todo(model, events.PinAsked()) == (effects.AnswerUnloads(),)
    assert todo(model, events.Crowded()) == ()


def test_idle_time_starts_with_the_last_answer_not_with_the_request() -> None:
    model, after = step(
        follow(READY, events.WorkArrived(), now=100.0), events.WorkFinished(), 200.0
    )
    assert after == (effects.SetTimer(200.0 + IDLE_S),)
    assert todo(model, rang(), 229.9) == (effects.SetTimer(230.0),)
    assert step(model, rang(), 230.0)[0].phase is Phase.STOPPING


@pytest.mark.parametrize(
    "before",
    [
        BUSY,
        follow(READY, events.PinAsked(), now=LATE),
        follow(READY, events.LimitsChanged(replace(LIMITS, idle_timeout_s=0)), now=LATE),
        follow(ASLEEP, events.LoadAsked()),
        ASLEEP,
    ],
    ids=["busy", "pinned", "never sleeps", "loading", "asleep"],
)
def test_timer_that_rings_late_stops_nothing(before: Model) -> None:
    assert step(before, rang(LATE), LATE) == (before, ())


def test_request_during_a_stop_waits_and_wakes_the_model_again() -> None:
    stopping = follow(READY, rang(), now=LATE)
    model, after = step(stopping, events.WorkArrived(), LATE)
    assert after == ()
    model, after = step(model, events.WorkerExited(1), LATE)
    assert model.phase is Phase.LOADING
    assert effects.StartWorker(2) in after


def test_unload_while_busy_drains_before_it_stops() -> None:
    model, after = step(BUSY, events.UnloadAsked(), 0.0)
    assert (model.phase, after) == (Phase.DRAINING, (effects.DrainLane(1, finish_queue=True),))
    assert effects.StopWorker(1, "unload") in todo(model, events.Drained(1))


def test_failed_load_refuses_what_waits_and_backs_off_longer_each_time() -> None:
    model, waits, now = ASLEEP, [], 0.0
    for worker in range(1, 12):
        model = follow(model, events.WorkArrived(), now=now)
        model, after = step(model, events.LoadFailed(worker, BROKEN), now)
        assert any(isinstance(effect, effects.RefuseQueued) for effect in after)
        model = follow(model, events.WorkFinished(), now=now)
        waits.append(model.retry_at - now)
        now = model.retry_at
    assert all(later >= earlier for earlier, later in pairwise(waits))
    assert waits[0] == backoff_s(1)
    assert waits[-1] == BACKOFF_LONGEST_S


def test_request_during_backoff_is_refused_with_the_reason_and_when_to_come_back() -> None:
    model = follow(ASLEEP, events.LoadAsked(), events.LoadFailed(1, BROKEN), now=10.0)
    (refusal,) = todo(model, events.WorkArrived(), model.retry_at - 0.25)
    assert isinstance(refusal, effects.RefuseQueued)
    assert refusal.error.message == BROKEN.message
    assert refusal.error.retry_after_s == pytest.approx(0.25)


def test_request_after_backoff_loads_again_and_success_forgets_the_error() -> None:
    model = follow(ASLEEP, events.LoadAsked(), events.LoadFailed(1, BROKEN))
    model, after = step(model, events.WorkArrived(), model.retry_at)
    assert after == (effects.StartWorker(2),)
    assert follow(model, events.WorkerReady(2)).last_error is None


def test_explicit_load_does_not_wait_for_the_backoff() -> None:
    failed = follow(ASLEEP, events.LoadAsked(), events.LoadFailed(1, BROKEN))
    assert todo(failed, events.LoadAsked()) == (effects.StartWorker(2),)


def test_load_that_runs_out_of_memory_gets_one_neighbour_evicted_and_one_more_try() -> None:
    loading = follow(ASLEEP, events.WorkArrived())
    model, after = step(loading, events.LoadFailed(1, NO_MEMORY), 0.0)
    assert after == (effects.MakeRoom(), effects.StartWorker(2))
    model, after = step(model, events.LoadFailed(2, NO_MEMORY), 0.0)
    assert model.phase is Phase.FAILED
    assert isinstance(after[0], effects.RefuseQueued)


def test_worker_that_ran_out_of_memory_is_replaced_when_its_hands_are_empty() -> None:
    model, after = step(BUSY, events.RanOutOfMemory(1), 0.0)
    assert after == (effects.MakeRoom(), effects.DrainLane(1, finish_queue=False))
    model = follow(model, events.Drained(1))
    assert effects.StartWorker(2) in todo(model, events.WorkerExited(1))


def test_crash_with_work_waiting_starts_a_fresh_worker_and_blames_what_it_held() -> None:
    crash = events.WorkerExited(1, CRASHED, healthy=True, blamed=True)
    model, after = step(BUSY, crash, 0.0)
    assert after[0] == effects.CloseLane(1, CRASHED)
    assert effects.StartWorker(2) in after
    assert model.last_error is CRASHED


def test_death_from_outside_blames_nobody() -> None:
    assert todo(BUSY, events.WorkerExited(1, CRASHED, healthy=True))[0] == effects.CloseLane(1)


def test_worker_that_keeps_dying_before_its_first_answer_is_given_up_for_a_while() -> None:
    model = follow(ASLEEP, events.WorkArrived())
    for number in (1, 2):
        model = follow(model, events.WorkerReady(number), events.WorkerExited(number, CRASHED))
        assert model.phase is Phase.LOADING
    model = follow(model, events.WorkerReady(3))
    model, after = step(model, events.WorkerExited(3, CRASHED), 0.0)
    assert model.phase is Phase.FAILED
    assert any(isinstance(effect, effects.RefuseQueued) for effect in after)


def test_crashes_between_answers_never_give_up() -> None:
    model = BUSY
    for number in range(1, 50):
        model = follow(
            model,
            events.WorkerExited(number, CRASHED, healthy=True, blamed=True),
            events.WorkerReady(number + 1),
        )
    assert model.phase is Phase.READY


def test_crash_of_an_idle_model_leaves_it_asleep_and_of_a_pinned_one_wakes_it() -> None:
    crash = events.WorkerExited(1, CRASHED, healthy=True)
    assert follow(READY, crash).phase is Phase.IDLE
    pinned = follow(READY, events.PinAsked())
    assert effects.StartWorker(2) in todo(pinned, crash)


def test_unload_asked_while_loading_for_a_request_happens_once_that_is_answered() -> None:
    loading = follow(ASLEEP, events.WorkArrived(), events.UnloadAsked())
    model, after = step(loading, events.WorkerReady(1), 0.0)
    assert model.phase is Phase.DRAINING
    assert after[0] == effects.OpenLane(1)


def test_unload_asked_while_loading_for_nobody_ends_the_load() -> None:
    model, after = step(follow(ASLEEP, events.LoadAsked()), events.UnloadAsked(), 0.0)
    assert model.phase is Phase.STOPPING
    assert isinstance(after[0], effects.AnswerLoads)
    assert after[0].error is not None


def test_long_queue_adds_one_replica_at_a_time_up_to_the_most() -> None:
    model, after = step(BUSY, events.Crowded(), 0.0)
    assert after == (effects.StartWorker(2),)
    assert todo(model, events.Crowded()) == ()
    model = follow(model, events.WorkerReady(2), events.Crowded(), events.WorkerReady(3))
    assert todo(model, events.Crowded()) == ()
    assert len(model.at(Stage.SERVING)) == 3


def test_replica_that_cannot_be_added_does_not_disturb_the_others() -> None:
    model = follow(BUSY, events.Crowded(), events.LoadFailed(2, BROKEN))
    assert (model.phase, model.last_error) == (Phase.READY, BROKEN)
    assert todo(model, events.Crowded()) == ()
    assert todo(model, events.Crowded(), model.retry_at) == (effects.StartWorker(3),)


def test_excess_replica_leaves_after_its_share_of_the_idle_time_the_last_after_all_of_it() -> None:
    model = follow(GROWN, events.WorkFinished(), now=100.0)
    half = 100.0 + IDLE_S / 2
    model, after = step(model, rang(100.0), half)
    assert after[0] == effects.DrainLane(2, finish_queue=False)
    assert effects.SetTimer(100.0 + IDLE_S) in after
    model = follow(model, events.Drained(2), events.WorkerExited(2), now=half)
    assert model.phase is Phase.READY
    model, after = step(model, rang(100.0), 100.0 + IDLE_S)
    assert effects.StopWorker(1, "idle") in after


def test_replica_that_is_still_needed_stays_however_long_it_has_served() -> None:
    model, after = step(GROWN, rang(needed_at=LATE - 1), LATE)
    assert model == GROWN
    assert after == (effects.SetTimer(LATE - 1 + IDLE_S / 2),)


def test_one_replica_less_goes_on_serving() -> None:
    model = follow(GROWN, events.WorkerExited(2, CRASHED, healthy=True, blamed=True))
    assert model.phase is Phase.READY
    assert len(model.replicas) == 1


@pytest.mark.parametrize(
    ("model", "at"),
    [
        (READY, RESIDENCY_S),
        (BUSY, None),
        (ASLEEP, None),
        (follow(ASLEEP, events.LoadAsked()), None),
        (follow(READY, events.PinAsked()), None),
        (follow(READY, rang(), now=LATE), None),
        (follow(GROWN, events.WorkFinished(), events.RanOutOfMemory(1)), None),
    ],
    ids=["ready", "busy", "asleep", "loading", "pinned", "stopping", "draining"],
)
def test_only_a_model_that_nobody_needs_may_be_evicted(model: Model, at: float | None) -> None:
    assert may_leave_at(model) == at


def test_eviction_is_decided_by_what_the_model_is_when_it_is_asked() -> None:
    assert todo(READY, events.EvictAsked("capacity"), RESIDENCY_S - 0.1) == ()
    assert todo(BUSY, events.EvictAsked("capacity"), LATE) == ()
    assert effects.StopWorker(1, "capacity") in todo(READY, events.EvictAsked("capacity"), LATE)


def test_pinned_model_that_fails_is_tried_again_when_its_backoff_is_over() -> None:
    loading = follow(ASLEEP, events.PinAsked())
    model, after = step(loading, events.LoadFailed(1, BROKEN), 0.0)
    assert effects.SetTimer(model.retry_at) in after
    assert todo(model, rang(), model.retry_at - 0.1) == (effects.SetTimer(model.retry_at),)
    assert todo(model, rang(), model.retry_at) == (effects.StartWorker(2),)


def test_pinned_model_that_crashes_as_soon_as_it_is_ready_backs_off_and_always_comes_back() -> None:
    model, now, starts = follow(ASLEEP, events.PinAsked()), 0.0, [0.0]
    for number in range(1, 20):
        crash = events.WorkerExited(number, CRASHED)
        model, after = step(follow(model, events.WorkerReady(number), now=now), crash, now)
        for effect in after:
            if isinstance(effect, effects.SetTimer):
                now = effect.at
                model, after = step(model, rang(), now)
        assert effects.StartWorker(number + 1) in after
        starts.append(now)
    waits = [later - earlier for earlier, later in pairwise(starts)]
    assert waits[:5] == [0.0, 0.0, backoff_s(3), backoff_s(4), backoff_s(5)]
    assert waits[-1] == BACKOFF_LONGEST_S


def test_pinned_model_whose_worker_ran_out_of_memory_comes_back_without_being_asked() -> None:
    pinned = follow(READY, events.PinAsked(), events.RanOutOfMemory(1), events.Drained(1))
    assert effects.StartWorker(2) in todo(pinned, events.WorkerExited(1))
    unloaded = follow(pinned, events.UnloadAsked())
    assert follow(unloaded, events.WorkerExited(1)).phase is Phase.IDLE


@pytest.mark.parametrize(
    "before",
    [
        follow(ASLEEP, events.WorkArrived()),
        follow(ASLEEP, events.LoadAsked()),
        follow(ASLEEP, events.PinAsked()),
        follow(ASLEEP, events.PinAsked(), events.WorkArrived()),
        follow(READY, events.PinAsked()),
    ],
    ids=["request", "load", "pin", "pin and request", "pinned and ready"],
)
def test_settings_that_change_while_somebody_needs_the_model_are_the_next_workers(
    before: Model,
) -> None:
    model, after = step(before, events.SettingsChanged(), 0.0)
    assert effects.StopWorker(1, "unload") in after
    assert not any(isinstance(effect, effects.AnswerLoads) for effect in after)
    assert effects.StartWorker(2) in todo(model, events.WorkerExited(1))


def test_settings_of_a_broken_model_change_so_it_gets_another_chance() -> None:
    broken = follow(ASLEEP, events.LoadAsked(), events.LoadFailed(1, BROKEN))
    mended = follow(broken, events.SettingsChanged())
    assert (mended.phase, mended.failures, mended.last_error) == (Phase.IDLE, 0, None)
    pinned = follow(ASLEEP, events.PinAsked(), events.LoadFailed(1, BROKEN))
    assert effects.StartWorker(2) in todo(pinned, events.SettingsChanged())


def test_load_that_an_unload_overtakes_is_told_so() -> None:
    model = follow(BUSY, events.UnloadAsked(), events.LoadAsked())
    (answer,) = todo(model, events.UnloadAsked())
    assert isinstance(answer, effects.AnswerLoads)
    assert answer.error is not None


def test_news_of_an_earlier_worker_changes_nothing() -> None:
    model = follow(READY, rang(), now=LATE)
    model = follow(model, events.WorkArrived(), events.WorkerExited(1), now=LATE)
    for late in (
        events.WorkerReady(1),
        events.LoadFailed(1, BROKEN),
        events.Drained(1),
        events.RanOutOfMemory(1),
        events.WorkerExited(1, CRASHED),
    ):
        assert step(model, late, LATE) == (model, ())


class World(RuleBasedStateMachine):
    """A simulated actor: performs effects as the real one does, and lets chance order the events.

    Requests are numbers. `queued` and `held` are where the accepted ones are, `settled` is how
    they ended.
    """

    @initialize(loads_fail=st.booleans(), crashes=st.booleans())
    def begin(self, loads_fail: bool, crashes: bool) -> None:
        self.loads_fail, self.crashes = loads_fail, crashes
        self.model = ASLEEP
        self.now = 0.0
        self.pending: list[events.Event] = []
        self.queued: list[int] = []
        self.held: dict[int, list[int]] = {}
        self.takes_up_to: dict[int, int] = {}
        self.settled: dict[int, str] = {}
        self.accepted = 0
        self.starting: set[int] = set()
        self.alive: set[int] = set()
        self.leaving: set[int] = set()
        self.born_at: dict[int, float] = {}
        self.settings = 0
        self.started_with: dict[int, int] = {}
        self.loads_waiting = self.unloads_waiting = 0
        self.timer: float | None = None
        self.needed_at = 0.0
        self.finished = self.may_refuse = False

    # The simulated actor

    def handle(self, event: events.Event) -> None:
        self.pending.append(event)
        if len(self.pending) > 1:
            return
        while self.pending:
            self.model, after = step(self.model, self.pending[0], self.now)
            for effect in after:
                self.perform(effect)
            self.pending.pop(0)

    def perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.StartWorker(number):
                assert not self.starting - self.leaving, "two loads at once"
                assert len(self.starting | self.alive) < LIMITS.max_replicas
                self.starting.add(number)
                self.started_with[number] = self.settings
            case effects.StopWorker(number, reason):
                assert not self.held.get(number), "stopped while requests were in flight"
                assert number in self.alive | self.starting
                if reason == "capacity":
                    self.check_victim()
                self.leaving.add(number)
            case effects.KillWorker(number):
                self.leaving.add(number)
            case effects.OpenLane(number):
                assert number in self.alive
                self.held[number] = []
            case effects.DrainLane(number, finish_queue):
                self.takes_up_to[number] = self.accepted if finish_queue else 0
                self.check_drained()
            case effects.CloseLane(number):
                living = number in self.alive
                assert not (living and self.held.get(number)), "taken from a living worker"
                self.queued = self.held.pop(number, []) + self.queued
                self.takes_up_to.pop(number, None)
            case effects.RefuseQueued():
                refused, self.queued = self.queued, []
                for request in refused:
                    self.settle(request, "refused")
            case effects.SetTimer(at):
                self.timer = at
            case effects.AnswerLoads():
                self.loads_waiting = 0
            case effects.AnswerUnloads():
                self.unloads_waiting = 0
            case effects.Finish():
                self.finished = True
                self.loads_waiting = 0

    def check_victim(self) -> None:
        assert not self.queued, "evicted with work waiting"
        assert not any(self.held.values()), "evicted while busy"
        assert not self.model.pinned, "evicted while pinned"
        youngest = max(self.born_at[number] for number in self.alive)
        assert self.now >= youngest + RESIDENCY_S, "evicted too young"

    def settle(self, request: int, how: str) -> None:
        assert request not in self.settled, "answered twice"
        self.settled[request] = how
        if not self.queued and not any(self.held.values()):
            self.handle(events.WorkFinished())

    def takers(self) -> list[int]:
        if not self.queued:
            return []
        request = self.queued[0]
        return [n for n in self.held if request <= self.takes_up_to.get(n, request)]

    def check_drained(self) -> None:
        for number, up_to in list(self.takes_up_to.items()):
            waiting = self.queued and self.queued[0] <= up_to
            if not self.held.get(number) and not waiting:
                self.handle(events.Drained(number))

    # What may happen

    @precondition(lambda self: not self.model.closing)
    @rule()
    def request_arrives(self) -> None:
        self.accepted += 1
        self.queued.append(self.accepted)
        if len(self.queued) == 1 and not any(self.held.values()):
            self.handle(events.WorkArrived())
        if len(self.queued) > 1:
            self.needed_at = self.now
            self.handle(events.Crowded())

    @precondition(lambda self: self.takers())
    @rule(data=st.data())
    def request_is_dispatched(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.takers()))
        self.held[number].append(self.queued.pop(0))

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def worker_answers(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.sampled_from([n for n, held in self.held.items() if held])))

    def answer(self, number: int) -> None:
        self.settle(self.held[number].pop(0), "answered")
        self.check_drained()

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.queued))
        self.queued.remove(request)
        self.settle(request, "withdrawn")
        self.check_drained()

    @precondition(lambda self: self.starting - self.leaving)
    @rule()
    def load_succeeds(self) -> None:
        (number,) = self.starting - self.leaving
        self.starting.remove(number)
        self.alive.add(number)
        self.born_at[number] = self.now
        self.handle(events.WorkerReady(number))

    @precondition(lambda self: self.loads_fail and self.starting)
    @rule(error=st.sampled_from([BROKEN, NO_MEMORY]), data=st.data())
    def load_fails(self, error: SnoozeError, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.remove(number)
        self.leaving.discard(number)
        self.may_refuse = True
        self.handle(events.LoadFailed(number, error))

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def worker_leaves(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from(sorted(self.leaving))))

    def leave(self, number: int) -> None:
        self.leaving.remove(number)
        self.starting.discard(number)
        self.alive.discard(number)
        self.handle(events.WorkerExited(number))

    @precondition(lambda self: self.crashes and self.alive - self.leaving)
    @rule(data=st.data(), healthy=st.booleans(), error=st.sampled_from([CRASHED, NO_MEMORY]))
    def worker_crashes(self, data: st.DataObject, healthy: bool, error: SnoozeError) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive - self.leaving)))
        self.alive.remove(number)
        self.may_refuse = self.may_refuse or not healthy
        self.handle(events.WorkerExited(number, error, healthy=healthy, blamed=True))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def worker_runs_out_of_memory(self, data: st.DataObject) -> None:
        self.handle(events.RanOutOfMemory(data.draw(st.sampled_from(sorted(self.alive)))))

    @rule(seconds=st.sampled_from([0.1, 1.0, RESIDENCY_S, IDLE_S, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.timer is not None and self.now >= self.timer)
    @rule()
    def timer_rings(self) -> None:
        self.timer = None
        self.handle(events.TimerRang(self.needed_at))

    @rule()
    def neighbour_wants_room(self) -> None:
        self.handle(events.EvictAsked("capacity"))

    @precondition(lambda self: not self.model.closing)
    @rule(asked=st.sampled_from([events.LoadAsked(), events.PinAsked()]))
    def load_is_asked(self, asked: events.Event) -> None:
        self.loads_waiting += 1
        self.handle(asked)

    @precondition(lambda self: not self.model.closing)
    @rule()
    def unload_is_asked(self) -> None:
        self.unloads_waiting += 1
        self.handle(events.UnloadAsked())

    @precondition(lambda self: not self.model.closing)
    @rule()
    def settings_change(self) -> None:
        self.settings += 1
        self.handle(events.SettingsChanged())

    @precondition(lambda self: not self.model.closing)
    @rule()
    def unpin_is_asked(self) -> None:
        self.handle(events.UnpinAsked())

    # A stop ends most of what a walk could still find, so it comes late.
    @precondition(lambda self: self.accepted > 8)
    @rule()
    def orderly_stop(self) -> None:
        self.handle(events.CloseAsked())

    @precondition(lambda self: self.accepted > 8)
    @rule()
    def forced_stop(self) -> None:
        self.may_refuse = True
        self.handle(events.KillAsked())

    # What must always hold

    @invariant()
    def work_flag_tells_the_truth(self) -> None:
        if hasattr(self, "model"):
            has_work = bool(self.queued) or any(self.held.values())
            assert self.model.has_work == has_work or self.finished

    @invariant()
    def state_and_processes_agree(self) -> None:
        if hasattr(self, "model"):
            assert {r.number for r in self.model.replicas} == self.alive | self.starting
            assert set(self.held) <= self.alive

    @invariant()
    def nobody_new_is_served_with_old_settings(self) -> None:
        if hasattr(self, "model"):
            for replica in self.model.at(Stage.STARTING, Stage.SERVING):
                assert self.started_with[replica.number] == self.settings

    @invariant()
    def work_is_never_stranded(self) -> None:
        """Who waits has somebody to wait for."""
        if hasattr(self, "model") and self.queued:
            assert self.model.replicas

    @invariant()
    def pinned_model_that_failed_is_tried_again_some_time(self) -> None:
        if hasattr(self, "model") and self.model.pinned and self.model.phase is Phase.FAILED:
            assert self.timer is not None or self.finished

    @invariant()
    def nobody_waits_for_what_will_not_come(self) -> None:
        if hasattr(self, "model") and not self.model.replicas:
            assert self.loads_waiting == 0
            assert self.unloads_waiting == 0

    @invariant()
    def finished_means_empty(self) -> None:
        if hasattr(self, "model") and self.finished:
            assert not self.queued
            assert not any(self.held.values())
            assert not self.alive | self.starting

    def teardown(self) -> None:
        """Whatever happened, let things take their course: nobody may be left waiting."""
        if not hasattr(self, "model"):
            return
        if not self.may_refuse:
            assert "refused" not in self.settled.values(), "refused without a reason"
        refused_before = self.refused()
        was_killed = self.model.killed
        self.handle(events.CloseAsked())
        for _ in range(20 * (self.accepted + 20)):
            if self.finished:
                break
            self.take_one_step()
        assert self.finished
        assert set(self.settled) == set(range(1, self.accepted + 1))
        assert self.loads_waiting == 0
        assert self.unloads_waiting == 0
        if not was_killed:
            assert self.refused() == refused_before, "an orderly stop rejects nobody"

    def take_one_step(self) -> None:
        if self.leaving:
            self.leave(min(self.leaving))
        elif self.starting:
            self.load_succeeds()
        elif self.takers():
            self.held[self.takers()[0]].append(self.queued.pop(0))
        else:
            busy = [number for number, held in self.held.items() if held]
            if busy:
                self.answer(busy[0])

    def refused(self) -> int:
        return sum(how == "refused" for how in self.settled.values())


World.TestCase.settings = settings(
    max_examples=250,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomWalks = World.TestCase
