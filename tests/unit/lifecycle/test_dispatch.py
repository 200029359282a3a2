"""Queue, window, answers: on a real event loop, with a list where the worker's socket would be."""

import asyncio
from collections.abc import Callable, Coroutine
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
    Overloaded,
    WorkerCrashed,
)
from snoozeml.lifecycle.dispatch import Dispatch, Lane, Ticket
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

    def __init__(self, max_queue: int = 100) -> None:
        self.reports: list[str] = []
        self.dispatch = Dispatch(
            max_queue,
            on_work_arrived=lambda: self.reports.append("arrived"),
            on_work_finished=lambda: self.reports.append("finished"),
            on_drained=lambda: self.reports.append("drained"),
        )

    def submit(self, timeout_s: float = 60.0) -> Ticket:
        now = asyncio.get_running_loop().time()
        return self.dispatch.submit(
            InferenceRequest("iris", Codec.JSON_V1, [b"{}"], now, now + timeout_s)
        )

    def open(self, window: int = 2) -> Outlet:
        outlet = Outlet()
        self.dispatch.open(Lane(outlet, window))
        return outlet

    def answer(self, ticket: Ticket, body: bytes = b"answer") -> None:
        self.dispatch.receive(Frame(Kind.RESULT, 1, 3, ticket.id, 0.001, 0.006, body))
        self.dispatch.flow()


@on_a_loop
async def test_requests_wait_until_a_worker_opens_and_then_fill_its_window() -> None:
    house = House()
    tickets = [house.submit() for _ in range(4)]
    outlet = house.open(window=2)
    assert outlet.inferred == [1, 2]
    assert house.dispatch.queue_depth == 2
    house.answer(tickets[1])
    assert outlet.inferred == [1, 2, 3]
    result = await tickets[1].answer
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
            await ticket.answer
    assert outlet.sent == [(Kind.INFER, held.id), (Kind.CANCEL, held.id)]
    assert house.reports[-1] == "finished"


@on_a_loop
async def test_answer_after_the_deadline_is_dropped() -> None:
    house = House()
    house.open()
    late = house.submit(0.001)
    await asyncio.wait([late.answer])
    house.answer(late)
    assert house.dispatch.outstanding == 0


@on_a_loop
async def test_caller_that_leaves_frees_its_place() -> None:
    house = House()
    outlet = house.open(window=1)
    held, queued, last = (house.submit() for _ in range(3))
    queued.abandon()
    held.abandon()
    held.abandon()
    assert outlet.sent[-2:] == [(Kind.CANCEL, held.id), (Kind.INFER, last.id)]
    assert house.dispatch.outstanding == 1
    with pytest.raises(Cancelled):
        await queued.answer


@on_a_loop
async def test_waiter_cancelled_at_the_moment_of_the_answer_is_settled_once() -> None:
    house = House()
    house.open()
    ticket = house.submit()
    ticket.answer.cancel()
    house.answer(ticket)
    ticket.abandon()
    assert house.reports == ["arrived", "finished"]


@on_a_loop
async def test_failure_reaches_only_its_own_request() -> None:
    house = House()
    house.open()
    bad, good = house.submit(), house.submit()
    failure = WorkerFailure(code="invalid_input", message="input X is missing")
    house.dispatch.receive(Frame(Kind.ERROR, 0, 0, bad.id, 0, 0, msgspec.json.encode(failure)))
    house.answer(good)
    with pytest.raises(InvalidInput, match="input X is missing"):
        await bad.answer
    await good.answer


@on_a_loop
async def test_lost_worker_has_its_requests_tried_once_more_in_order() -> None:
    house = House()
    house.open(window=2)
    tickets = [house.submit() for _ in range(3)]
    house.dispatch.close()
    outlet = house.open(window=3)
    assert outlet.inferred == [ticket.id for ticket in tickets]


@on_a_loop
async def test_request_in_flight_at_two_deaths_is_blamed_and_the_others_live() -> None:
    house = House()
    house.open(window=1)
    suspect, innocent = house.submit(), house.submit()
    house.dispatch.close()
    house.open(window=1)
    house.dispatch.close()
    with pytest.raises(WorkerCrashed, match="twice"):
        await suspect.answer
    house.open()
    house.answer(innocent)
    await innocent.answer


@on_a_loop
async def test_drain_lets_through_what_was_accepted_and_holds_back_the_rest() -> None:
    house = House()
    outlet = house.open(window=1)
    first, second = house.submit(), house.submit()
    house.dispatch.drain()
    late = house.submit()
    house.answer(first)
    assert "drained" not in house.reports
    house.answer(second)
    assert house.reports[-1] == "drained"
    assert late.id not in outlet.inferred
    house.dispatch.close()
    assert house.open().inferred == [late.id]


@on_a_loop
async def test_refusal_empties_the_queue() -> None:
    house = House()
    tickets = [house.submit() for _ in range(3)]
    house.dispatch.refuse(ModelFailed("broken"))
    for ticket in tickets:
        with pytest.raises(ModelFailed):
            await ticket.answer
    assert house.reports == ["arrived", "finished"]
