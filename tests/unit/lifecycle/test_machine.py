"""The pure half of the lifecycle: what must follow, what must never be, what must come at last.

Some cases pin one transition; the walk drives a whole simulated world in random order and checks
the promises that the actor and every client rely on.
"""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from snoozeml.errors import ModelFailed, WorkerCrashed
from snoozeml.lifecycle import effects, events
from snoozeml.lifecycle.machine import BACKOFF_LONGEST_S, Model, Phase, backoff_s, step

IDLE_S = 30.0
BROKEN = ModelFailed("the file is broken")
CRASHED = WorkerCrashed("the worker was ended by SIGKILL")


def follow(model: Model, *happened: events.Event, now: float = 0.0) -> Model:
    for event in happened:
        model, _ = step(model, event, now)
    return model


def ready_model() -> Model:
    return follow(Model(idle_timeout_s=IDLE_S), events.LoadAsked(), events.WorkerReady(1))


def test_first_request_starts_exactly_one_worker() -> None:
    model, todo = step(Model(idle_timeout_s=IDLE_S), events.WorkArrived(), 0.0)
    assert todo == (effects.StartWorker(1),)
    assert step(model, events.LoadAsked(), 0.0)[1] == (effects.AnswerUnloads(),)
    assert step(model, events.PinAsked(), 0.0)[1] == (effects.AnswerUnloads(),)


def test_idle_time_starts_with_the_last_answer_not_with_the_request() -> None:
    model = follow(ready_model(), events.WorkArrived(), now=100.0)
    model, todo = step(model, events.WorkFinished(), 200.0)
    assert todo == (effects.SetIdleTimer(200.0 + IDLE_S),)
    assert step(model, events.IdleDue(), 229.9)[1] == (effects.SetIdleTimer(230.0),)
    assert step(model, events.IdleDue(), 230.0)[0].phase is Phase.STOPPING


@pytest.mark.parametrize(
    "before",
    [
        follow(ready_model(), events.WorkArrived()),
        follow(ready_model(), events.PinAsked()),
        follow(ready_model(), events.SettingsChanged(0)),
        follow(Model(idle_timeout_s=IDLE_S), events.LoadAsked()),
        Model(idle_timeout_s=IDLE_S),
    ],
    ids=["busy", "pinned", "never sleeps", "loading", "asleep"],
)
def test_idle_timer_that_rings_late_stops_nothing(before: Model) -> None:
    assert step(before, events.IdleDue(), 1e9) == (before, ())


def test_request_during_a_stop_waits_and_wakes_the_model_again() -> None:
    stopping = follow(ready_model(), events.IdleDue(), now=1e6)
    model, todo = step(stopping, events.WorkArrived(), 1e6)
    assert todo == ()
    model, todo = step(model, events.WorkerExited(1), 1e6)
    assert model.phase is Phase.LOADING
    assert effects.StartWorker(2) in todo


def test_unload_while_busy_drains_before_it_stops() -> None:
    model, todo = step(follow(ready_model(), events.WorkArrived()), events.UnloadAsked(), 0.0)
    assert (model.phase, todo) == (Phase.DRAINING, (effects.DrainDispatch(),))
    model, todo = step(model, events.Drained(1), 0.0)
    assert effects.StopWorker(1, "unload") in todo


def test_failed_load_refuses_what_waits_and_backs_off_longer_each_time() -> None:
    model = Model(idle_timeout_s=IDLE_S)
    waits = []
    now = 0.0
    for worker in range(1, 12):
        model, _ = step(model, events.WorkArrived(), now)
        model, todo = step(model, events.LoadFailed(worker, BROKEN), now)
        assert any(isinstance(effect, effects.RefuseQueued) for effect in todo)
        model, _ = step(model, events.WorkFinished(), now)
        waits.append(model.retry_at - now)
        now = model.retry_at
    assert all(later >= earlier for earlier, later in pairwise(waits))
    assert waits[0] == backoff_s(1)
    assert waits[-1] == BACKOFF_LONGEST_S


def test_request_during_backoff_is_refused_with_the_reason_and_when_to_come_back() -> None:
    model = follow(
        Model(idle_timeout_s=IDLE_S), events.LoadAsked(), events.LoadFailed(1, BROKEN), now=10.0
    )
    _, todo = step(model, events.WorkArrived(), model.retry_at - 0.25)
    (refusal,) = todo
    assert isinstance(refusal, effects.RefuseQueued)
    assert refusal.error.message == BROKEN.message
    assert refusal.error.retry_after_s == pytest.approx(0.25)


def test_request_after_backoff_loads_again_and_success_forgets_the_failure() -> None:
    model = follow(Model(idle_timeout_s=IDLE_S), events.LoadAsked(), events.LoadFailed(1, BROKEN))
    model, todo = step(model, events.WorkArrived(), model.retry_at)
    assert todo == (effects.StartWorker(2),)
    model = follow(model, events.WorkerReady(2))
    assert (model.failures, model.last_error) == (0, None)


def test_explicit_load_does_not_wait_for_the_backoff() -> None:
    failed = follow(Model(idle_timeout_s=IDLE_S), events.LoadAsked(), events.LoadFailed(1, BROKEN))
    assert step(failed, events.LoadAsked(), 0.0)[1] == (effects.StartWorker(2),)


def test_crash_with_work_waiting_starts_a_fresh_worker() -> None:
    busy = follow(ready_model(), events.WorkArrived())
    model, todo = step(busy, events.WorkerExited(1, CRASHED), 0.0)
    assert todo[0] == effects.CloseDispatch()
    assert effects.StartWorker(2) in todo
    assert model.last_error is CRASHED


def test_crash_of_an_idle_model_leaves_it_asleep_and_of_a_pinned_one_wakes_it() -> None:
    asleep, _ = step(ready_model(), events.WorkerExited(1, CRASHED), 0.0)
    assert asleep.phase is Phase.IDLE
    pinned = follow(ready_model(), events.PinAsked())
    assert effects.StartWorker(2) in step(pinned, events.WorkerExited(1, CRASHED), 0.0)[1]


def test_unload_asked_while_loading_happens_once_the_load_is_done() -> None:
    loading = follow(Model(idle_timeout_s=IDLE_S), events.LoadAsked(), events.UnloadAsked())
    model, todo = step(loading, events.WorkerReady(1), 0.0)
    assert model.phase is Phase.STOPPING
    assert effects.AnswerLoads() in todo


def test_news_of_an_earlier_worker_changes_nothing() -> None:
    model = follow(ready_model(), events.IdleDue(), now=1e6)
    model = follow(model, events.WorkArrived(), events.WorkerExited(1), now=1e6)
    for late in (
        events.WorkerReady(1),
        events.LoadFailed(1, BROKEN),
        events.Drained(1),
        events.WorkerExited(1, CRASHED),
    ):
        assert step(model, late, 1e6) == (model, ())


class World(RuleBasedStateMachine):
    """A simulated actor: performs effects as the real one does, and lets chance order the events.

    Requests are numbers. `queued` and `held` are where the accepted ones are; `answered` and
    `refused` count how they ended.
    """

    @initialize(loads_fail=st.booleans(), crashes=st.booleans())
    def begin(self, loads_fail: bool, crashes: bool) -> None:
        self.loads_fail, self.crashes = loads_fail, crashes
        self.model = Model(idle_timeout_s=IDLE_S)
        self.now = 0.0
        self.pending: list[events.Event] = []
        self.queued: list[int] = []
        self.held: list[int] = []
        self.settled: dict[int, str] = {}
        self.accepted = 0
        self.open = False
        self.drain_up_to: int | None = None
        self.starting: int | None = None
        self.alive: int | None = None
        self.leaving = False
        self.loads_waiting = self.unloads_waiting = 0
        self.timer: float | None = None
        self.finished = self.refusing_expected = False

    # The simulated actor

    def handle(self, event: events.Event) -> None:
        self.pending.append(event)
        if len(self.pending) > 1:
            return
        while self.pending:
            self.model, todo = step(self.model, self.pending[0], self.now)
            for effect in todo:
                self.perform(effect)
            self.pending.pop(0)

    def perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.StartWorker(number):
                assert self.starting is None, "two loads at once"
                assert self.alive is None, "a second worker beside the first"
                self.starting = number
            case effects.StopWorker(number, _):
                assert not self.held, "stopped while requests were in flight"
                assert number in (self.alive, self.starting)
                self.leaving = True
            case effects.KillWorker():
                self.leaving = True
            case effects.OpenDispatch():
                assert self.alive is not None
                self.open = True
            case effects.DrainDispatch():
                self.drain_up_to = self.accepted
                self.check_drained()
            case effects.CloseDispatch():
                self.queued = self.held + self.queued
                self.held = []
                self.open, self.drain_up_to = False, None
            case effects.RefuseQueued():
                refused, self.queued = self.queued, []
                for request in refused:
                    self.settle(request, "refused")
            case effects.SetIdleTimer(at):
                self.timer = at
            case effects.AnswerLoads():
                self.loads_waiting = 0
            case effects.AnswerUnloads():
                self.unloads_waiting = 0
            case effects.Finish():
                self.finished = True
                self.loads_waiting = 0

    def settle(self, request: int, how: str) -> None:
        assert request not in self.settled, "answered twice"
        self.settled[request] = how
        if not self.queued and not self.held:
            self.handle(events.WorkFinished())

    def eligible(self) -> bool:
        return bool(self.queued) and (
            self.drain_up_to is None or self.queued[0] <= self.drain_up_to
        )

    def check_drained(self) -> None:
        if self.drain_up_to is not None and not self.held and not self.eligible():
            self.handle(events.Drained(self.model.worker))

    # What may happen

    @precondition(lambda self: not self.model.closing)
    @rule()
    def request_arrives(self) -> None:
        self.accepted += 1
        self.queued.append(self.accepted)
        if len(self.queued) + len(self.held) == 1:
            self.handle(events.WorkArrived())

    @precondition(lambda self: self.open and self.eligible())
    @rule()
    def request_is_dispatched(self) -> None:
        self.held.append(self.queued.pop(0))

    @precondition(lambda self: self.held)
    @rule()
    def worker_answers(self) -> None:
        self.settle(self.held.pop(0), "answered")
        self.check_drained()

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.queued))
        self.queued.remove(request)
        self.settle(request, "withdrawn")
        self.check_drained()

    @precondition(lambda self: self.starting is not None and not self.leaving)
    @rule()
    def load_succeeds(self) -> None:
        self.alive, self.starting = self.starting, None
        assert self.alive is not None
        self.handle(events.WorkerReady(self.alive))

    @precondition(lambda self: self.starting is not None and not self.leaving and self.loads_fail)
    @rule()
    def load_fails(self) -> None:
        number, self.starting = self.starting, None
        assert number is not None
        self.handle(events.LoadFailed(number, BROKEN))

    @precondition(lambda self: self.leaving)
    @rule()
    def worker_leaves(self) -> None:
        number = self.alive or self.starting
        assert number is not None
        self.alive = self.starting = None
        self.leaving = False
        self.handle(events.WorkerExited(number))

    @precondition(lambda self: self.alive is not None and not self.leaving and self.crashes)
    @rule()
    def worker_crashes(self) -> None:
        number, self.alive = self.alive, None
        assert number is not None
        self.handle(events.WorkerExited(number, CRASHED))

    @rule(seconds=st.sampled_from([0.1, 1.0, IDLE_S, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.timer is not None and self.now >= self.timer)
    @rule()
    def timer_rings(self) -> None:
        self.timer = None
        self.handle(events.IdleDue())

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
    def unpin_is_asked(self) -> None:
        self.handle(events.UnpinAsked())

    @rule()
    def orderly_stop(self) -> None:
        self.handle(events.CloseAsked())

    @rule()
    def forced_stop(self) -> None:
        self.refusing_expected = True
        self.handle(events.KillAsked())

    # What must always hold

    @invariant()
    def work_flag_tells_the_truth(self) -> None:
        if hasattr(self, "model"):
            assert self.model.has_work == bool(self.queued or self.held) or self.finished

    @invariant()
    def requests_flow_only_to_a_living_worker(self) -> None:
        if hasattr(self, "model") and self.open:
            assert self.alive is not None

    @invariant()
    def finished_means_empty(self) -> None:
        if hasattr(self, "model") and self.finished:
            assert not self.queued
            assert not self.held
            assert self.alive is None
            assert self.starting is None

    def teardown(self) -> None:
        """Whatever happened, let things take their course: nobody may be left waiting."""
        if not hasattr(self, "model"):
            return
        self.loads_fail = self.crashes = False
        refused_before = self.refused()
        self.handle(events.CloseAsked())
        for _ in range(10 * (self.accepted + 10)):
            if self.finished:
                break
            self.take_one_step()
        assert self.finished
        assert set(self.settled) == set(range(1, self.accepted + 1))
        assert self.loads_waiting == 0
        assert self.unloads_waiting == 0
        if not self.refusing_expected:
            assert self.refused() == refused_before, "an orderly stop rejects nobody"

    def take_one_step(self) -> None:
        if self.leaving:
            self.worker_leaves()
        elif self.starting is not None:
            self.load_succeeds()
        elif self.open and self.eligible():
            self.request_is_dispatched()
        elif self.held:
            self.worker_answers()

    def refused(self) -> int:
        return sum(how == "refused" for how in self.settled.values())


World.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomWalks = World.TestCase
