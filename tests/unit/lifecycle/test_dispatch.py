"""Queue, window, answers: on a real event loop, with a list where the worker's socket would be."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps

import msgspec
import pytest

from snoozeml.core.plan import WorkerFailure
from snoozeml.core.request import Codec, InferenceRequest, InferenceResult
from snoozeml.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidInput,
    ModelFailed,
    OutOfMemory,
    Overloaded,
    SnoozeError,
    WorkerCrashed,
)
from snoozeml.lifecycle.dispatch import Dispatch
from snoozeml.lifecycle.lane import Lane
from snoozeml.lifecycle.routing import routing
from snoozeml.lifecycle.ticket import Outcome, Ticket
from snoozeml.wire.frames import Frame, Kind


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Outlet:
    """Remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Kind, int]] = []

    def send(self, kind: Kind, body: object = (), *, id: int = 0, **_: object) -> None:
        self.sent.append((kind, id))

    @property
    def inferred(self) -> list[int]:
        return [id for kind, id in self.sent if kind is Kind.INFER]


class House:
    """A dispatch and what it reported."""

    def __init__(self, max_queue: int = 100, crowd: int = 100) -> None:
        self.reports: list[str] = []
        self.dispatch = Dispatch(
            self, max_queue=max_queue, crowd=crowd, choose=routing("least_queue")
        )
        self.lanes: dict[int, Lane] = {}
        self.counts = Counter[str]()

    def answered(self, ticket: Ticket, result: InferenceResult) -> None:
        self.counts["answered"] += 1

    def failed(self, ticket: Ticket) -> None:
        self.counts["failed"] += 1

    def work_arrived(self) -> None:
        self.reports.append("arrived")

    def work_finished(self) -> None:
        self.reports.append("finished")

    def crowded(self) -> None:
        self.reports.append("crowded")

    def ran_out_of_memory(self, number: int) -> None:
        self.reports.append(f"out of memory {number}")

    def drained(self, number: int) -> None:
        self.reports.append("drained")

    def submit(
        self, timeout_s: float = 60.0, priority: int = 0, body: Sequence[bytes] = (b"{}",)
    ) -> Ticket:
        now = asyncio.get_running_loop().time()
        due = now + timeout_s
        return self.dispatch.submit(
            InferenceRequest("iris", Codec.JSON_V1, body, now, due, priority=priority)
        )

    def open(self, window: int = 2, number: int = 1) -> Outlet:
        outlet = Outlet()
        self.lanes[number] = Lane(number, outlet, window)
        self.dispatch.open(self.lanes[number])
        return outlet

    def close(self, blame: SnoozeError | None = None, number: int = 1) -> None:
        self.dispatch.close(number, blame)

    def answer(self, ticket: Ticket, number: int = 1) -> None:
        frame = Frame(Kind.RESULT, 1, 3, ticket.id, 0.001, 0.006, b"answer")
        self.dispatch.receive(self.lanes[number], frame)
        self.dispatch.flow()

    def fail(self, ticket: Ticket, error: SnoozeError) -> None:
        failure = msgspec.json.encode(WorkerFailure(code=error.code, message=error.message))
        self.dispatch.receive(self.lanes[1], Frame(Kind.ERROR, 0, 0, ticket.id, 0, 0, failure))
        self.dispatch.flow()


CRASH = WorkerCrashed("the worker was ended by SIGSEGV")


@on_a_loop
async def test_requests_wait_until_a_worker_opens_and_then_fill_its_window() -> None:
    house = House()
    tickets = [house.submit() for _ in range(4)]
    outlet = house.open(window=2)
    assert outlet.inferred == [1, 2]
    assert house.dispatch.queue_depth == 2
    house.answer(tickets[1])
    assert outlet.inferred == [1, 2, 3]
    result = await tickets[1].outcome()
    assert isinstance(result, InferenceResult)
    assert (result.body, result.batch_size, result.queue_s) == (b"answer", 3, 0.001)
    assert house.dispatch.outstanding == 3


@on_a_loop
async def test_work_is_reported_at_its_first_and_last_request_only() -> None:
    house = House()
    house.open()
    first, second = house.submit(), house.submit()
    house.answer(first)
    assert house.reports == ["arrived"]
    house.answer(second)
    assert house.reports == ["arrived", "finished"]


@on_a_loop
async def test_full_queue_sheds_with_advice_when_to_come_back() -> None:
    house = House(max_queue=2)
    house.open(window=1)
    house.answer(house.submit())
    for _ in range(3):
        house.submit()
    with pytest.raises(Overloaded, match="max_queue") as caught:
        house.submit()
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 0
    assert house.dispatch.outstanding == 3


@on_a_loop
async def test_deadline_answers_in_time_wherever_the_request_is() -> None:
    house = House()
    outlet = house.open(window=1)
    held, queued = house.submit(0.02), house.submit(0.01)
    for ticket in (held, queued):
        with pytest.raises(DeadlineExceeded):
            await ticket.outcome()
    assert outlet.sent == [(Kind.INFER, held.id), (Kind.CANCEL, held.id)]
    assert house.reports[-1] == "finished"


@on_a_loop
async def test_answer_after_the_deadline_is_dropped() -> None:
    house = House()
    house.open()
    late = house.submit(0.001)
    with pytest.raises(DeadlineExceeded):
        await late.outcome()
    house.answer(late)
    assert house.dispatch.outstanding == 0


@on_a_loop
async def test_caller_that_leaves_frees_its_place_once_the_worker_lets_go() -> None:
    house = House()
    outlet = house.open(window=1)
    held, queued, last = (house.submit() for _ in range(3))
    queued.abandon()
    held.abandon()
    held.abandon()
    assert outlet.sent[-1] == (Kind.CANCEL, held.id)
    assert house.dispatch.outstanding == 1
    house.answer(held)
    assert outlet.sent[-1] == (Kind.INFER, last.id)
    with pytest.raises(Cancelled):
        await queued.outcome()


@on_a_loop
async def test_a_worker_gets_no_more_while_it_has_much_to_read() -> None:
    house = House()
    outlet = house.open(window=10)
    half = bytes(32 * 2**20)
    large = [house.submit(body=[half, half]) for _ in range(2)]
    small = house.submit()
    large[0].abandon()  # it stays in the socket all the same
    assert outlet.inferred == [large[0].id]
    assert house.dispatch.queue_depth == 2
    house.answer(large[0])
    assert outlet.inferred == [ticket.id for ticket in large]
    house.answer(large[1])
    assert outlet.inferred[-1] == small.id


@on_a_loop
async def test_waiter_cancelled_at_the_moment_of_the_answer_is_settled_once() -> None:
    house = House()
    house.open()
    ticket = house.submit()
    waiter = asyncio.create_task(ticket.outcome())
    await asyncio.sleep(0)
    waiter.cancel()
    house.answer(ticket)
    await asyncio.wait([waiter])
    assert waiter.cancelled()
    assert house.reports == ["arrived", "finished"]


@on_a_loop
async def test_whoever_wants_to_be_told_is_told_once_now_or_later() -> None:
    house = House()
    house.open()
    ticket, refused, heard = house.submit(), house.submit(), list[Outcome]()
    ticket.tell(heard.append)
    assert heard == []
    house.answer(ticket)
    refused.abandon()
    refused.tell(heard.append)
    house.answer(refused)
    result, error = heard
    assert isinstance(result, InferenceResult)
    assert result.body == b"answer"
    assert isinstance(error, Cancelled)


@on_a_loop
async def test_failure_reaches_only_its_own_request() -> None:
    house = House()
    house.open()
    bad, good = house.submit(), house.submit()
    house.fail(bad, InvalidInput("input X is missing"))
    house.answer(good)
    with pytest.raises(InvalidInput, match="input X is missing"):
        await bad.outcome()
    await good.outcome()


@on_a_loop
async def test_lost_worker_has_its_requests_tried_once_more_in_order() -> None:
    house = House()
    house.open(window=2)
    tickets = [house.submit() for _ in range(3)]
    house.close()
    outlet = house.open(window=3)
    assert outlet.inferred == [ticket.id for ticket in tickets]


@on_a_loop
async def test_suspect_runs_alone_so_that_no_innocent_request_is_blamed_with_it() -> None:
    house = House()
    house.open(window=3)
    innocent, killer, late = (house.submit() for _ in range(3))
    house.close(CRASH)
    outlet = house.open(window=3)
    assert outlet.inferred == [innocent.id]
    house.answer(innocent)
    assert outlet.inferred[-1] == killer.id
    house.close(CRASH)
    with pytest.raises(WorkerCrashed, match="SIGSEGV"):
        await killer.outcome()
    house.open(window=3)
    house.answer(late)
    assert (await late.outcome()).body == b"answer"


@on_a_loop
async def test_killer_is_refused_for_a_while_by_its_content() -> None:
    house = House()
    for _ in range(2):
        house.open()
        if not house.dispatch.outstanding:
            house.submit()
        house.close(CRASH)
    with pytest.raises(WorkerCrashed, match="refused"):
        house.submit()


@on_a_loop
async def test_death_that_is_nobodys_fault_blames_nobody() -> None:
    house = House()
    ticket = house.submit()
    for _ in range(5):
        house.open()
        house.close()
    house.open()
    house.answer(ticket)
    await ticket.outcome()


@on_a_loop
async def test_request_that_ran_out_of_memory_is_tried_once_more() -> None:
    house = House()
    house.open()
    ticket = house.submit()
    house.fail(ticket, OutOfMemory("out of memory: 1 GiB"))
    assert house.reports[-1] == "out of memory 1"
    house.fail(ticket, OutOfMemory("out of memory: 1 GiB"))
    with pytest.raises(OutOfMemory):
        await ticket.outcome()


@on_a_loop
async def test_new_replica_takes_from_the_waiting_queue_at_once() -> None:
    house = House(crowd=1)
    first = house.open(window=1)
    tickets = [house.submit() for _ in range(3)]
    assert house.reports == ["arrived", "crowded"]
    second = house.open(window=1, number=2)
    assert (first.inferred, second.inferred) == ([tickets[0].id], [tickets[1].id])


@on_a_loop
async def test_need_of_the_second_replica_is_noted_only_while_one_would_not_do() -> None:
    house = House()
    house.open(window=2)
    house.open(window=2, number=2)
    house.submit()
    house.submit()
    assert house.dispatch.needed_at == 0.0
    house.submit()
    assert house.dispatch.needed_at > 0.0


@on_a_loop
async def test_drain_lets_through_what_was_accepted_and_holds_back_the_rest() -> None:
    house = House()
    outlet = house.open(window=1)
    first, second = house.submit(), house.submit()
    house.dispatch.drain(1, finish_queue=True)
    late = house.submit()
    house.answer(first)
    assert "drained" not in house.reports
    house.answer(second)
    assert house.reports[-1] == "drained"
    assert late.id not in outlet.inferred
    house.close()
    assert house.open().inferred == [late.id]


@on_a_loop
async def test_replica_that_is_one_too_many_takes_nothing_more() -> None:
    house = House()
    first = house.open(window=1)
    second = house.open(window=1, number=2)
    tickets = [house.submit() for _ in range(3)]
    house.dispatch.drain(2, finish_queue=False)
    house.answer(tickets[1], number=2)
    assert house.reports[-1] == "drained"
    assert len(second.inferred) == 1
    house.answer(tickets[0])
    assert first.inferred == [tickets[0].id, tickets[2].id]


@on_a_loop
async def test_request_that_waited_for_room_in_vain_is_told_so() -> None:
    house = House()
    house.dispatch.blocked_by = OutOfMemory("no room")
    with pytest.raises(OutOfMemory, match="no room"):
        await house.submit(0.01).outcome()


@on_a_loop
async def test_refusal_empties_the_queue() -> None:
    house = House()
    tickets = [house.submit() for _ in range(3)]
    house.dispatch.refuse(ModelFailed("broken"))
    for ticket in tickets:
        with pytest.raises(ModelFailed):
            await ticket.outcome()
    assert house.reports == ["arrived", "finished"]


# Priorities


@on_a_loop
async def test_requests_leave_the_queue_by_priority_and_then_by_arrival() -> None:
    house = House()
    house.open(window=1)
    running = house.submit()
    plain, low, high, default, second = (house.submit(priority=p) for p in (0, 9, 1, 5, 2))
    house.close()
    outlet = house.open(window=10)
    wanted = [high, second, plain, default, low]
    assert outlet.inferred == [running.id, *(ticket.id for ticket in wanted)]


@on_a_loop
async def test_priority_does_not_overtake_what_is_tried_again() -> None:
    house = House()
    house.open(window=1)
    unlucky = house.submit()
    waiting = house.submit()
    house.close()
    urgent = house.submit(priority=1)
    outlet = house.open(window=3)
    assert outlet.inferred == [unlucky.id, urgent.id, waiting.id]


@on_a_loop
async def test_priority_does_not_keep_a_draining_worker_from_what_was_accepted_before() -> None:
    house = House()
    outlet = house.open(window=1)
    first, second, third = (house.submit() for _ in range(3))
    house.dispatch.drain(1, finish_queue=True)
    urgent = house.submit(priority=1)
    for ticket in (first, second, third):
        assert "drained" not in house.reports
        house.answer(ticket)
    assert house.reports[-1] == "drained"
    assert outlet.inferred == [first.id, second.id, third.id]
    house.close()
    assert house.open().inferred == [urgent.id]


@on_a_loop
async def test_request_with_a_priority_can_leave_the_queue() -> None:
    house = House()
    plain, urgent, low = (house.submit(priority=p) for p in (0, 1, 9))
    urgent.abandon()
    low.abandon()
    assert house.open().inferred == [plain.id]
