"""Which requests share a batch, in which order, and when."""

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.worker.batcher import Batcher, Run, Wait
from snoozeml.worker.limits import Limits
from snoozeml.worker.pacing import AdaptivePace, FixedPace
from unit.worker.simulation import MAX_ROWS, pending

DELAY_S = 0.010
MAX_TOKENS = 64


def batcher(delay_s: float = 0.0, max_rows: int = MAX_ROWS) -> Batcher:
    return Batcher(Limits(max_rows, MAX_TOKENS), FixedPace(delay_s))


def fill(target: Batcher, *requests: tuple[float, Hashable, int]) -> None:
    for number, (at, key, rows) in enumerate(requests):
        request = pending(number, at, rows=rows)
        request.batch_key = key
        target.add(request, backlog=0)


def ids(todo: object) -> list[int]:
    assert isinstance(todo, Run)
    return [request.id for request in todo.batch]


def test_nothing_to_do_is_nothing() -> None:
    assert batcher().next(0.0) is None


def test_requests_with_one_key_share_a_batch_in_order_of_arrival() -> None:
    subject = batcher()
    fill(subject, (0, "a", 1), (1, "b", 1), (2, "a", 3))
    assert [ids(subject.next(9)), ids(subject.next(9)), subject.next(9)] == [[0, 2], [1], None]


def test_a_batch_is_full_by_rows() -> None:
    subject = batcher(max_rows=4)
    fill(subject, (0, "a", 2), (1, "a", 2), (2, "a", 3), (3, "a", 2), (4, "a", 1))
    assert [ids(subject.next(9)) for _ in range(3)] == [[0, 1], [2], [3, 4]]


def test_it_is_known_when_a_batch_waits_for_nothing_any_more() -> None:
    subject = batcher(delay_s=1.0, max_rows=3)
    fill(subject, (0, "a", 1), (0, "b", 1), (0, "a", 1))
    assert not subject.is_full
    fill(subject, (0, "a", 1))
    assert subject.is_full
    assert len(ids(subject.next(0.0))) == 3
    assert not subject.is_full


def fill_with_lengths(target: Batcher, *lengths: int, rows: int = 1) -> None:
    for number, length in enumerate(lengths):
        request = pending(number, 1.0, rows=rows)
        request.length = length
        target.add(request, backlog=0)


def test_a_batch_is_full_by_tokens_each_row_as_long_as_the_longest() -> None:
    subject = batcher(max_rows=8)
    fill_with_lengths(subject, 16, 8, 8, 8, 20, 20, 20, 65, 1)
    batches = [ids(subject.next(9)) for _ in range(4)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6], [7], [8]]
    assert subject.next(9) is None


def test_a_batch_that_can_take_no_more_tokens_runs_at_once() -> None:
    subject = batcher(DELAY_S)
    fill_with_lengths(subject, 30, 10)
    assert ids(subject.next(1.0)) == [0, 1]


def test_a_batch_with_room_for_tokens_waits() -> None:
    subject = batcher(DELAY_S)
    fill_with_lengths(subject, 20, 10)
    assert subject.next(1.0) == Wait(1.0 + DELAY_S)
    subject.limit(Limits(MAX_ROWS, 40))
    assert ids(subject.next(1.0)) == [0, 1]


def test_a_request_larger_than_a_batch_is_one() -> None:
    subject = batcher(max_rows=4)
    fill(subject, (0, "a", 9), (1, "a", 1))
    assert [ids(subject.next(9)) for _ in range(2)] == [[0], [1]]


def test_a_batch_that_is_not_full_waits_for_its_oldest_request() -> None:
    subject = batcher(DELAY_S)
    fill(subject, (1.0, "a", 1), (1.005, "a", 1))
    assert subject.next(1.006) == Wait(1.0 + DELAY_S)
    assert ids(subject.next(1.0 + DELAY_S)) == [0, 1]


@pytest.mark.parametrize(
    "requests",
    [
        [(1.0, "a", MAX_ROWS)],
        [(1.0, "a", MAX_ROWS + 1)],
        [(1.0, "a", MAX_ROWS - 1), (1.0, "a", 2)],
        [(1.0, None, 1)],
    ],
    ids=["full", "larger", "next does not fit", "no company possible"],
)
def test_a_batch_that_can_take_no_more_runs_at_once(
    requests: list[tuple[float, Hashable, int]],
) -> None:
    subject = batcher(DELAY_S)
    fill(subject, *requests)
    assert ids(subject.next(1.0)) == [0]


def test_a_full_batch_does_not_wait_behind_one_that_waits() -> None:
    subject = batcher(DELAY_S)
    fill(subject, (1.0, "a", 1), (1.001, "b", MAX_ROWS))
    assert ids(subject.next(1.002)) == [1]
    assert subject.next(1.003) == Wait(1.0 + DELAY_S)


def test_requests_without_a_key_run_alone() -> None:
    subject = batcher()
    fill(subject, (0, None, 1), (0, None, 1))
    assert [ids(subject.next(9)) for _ in range(2)] == [[0], [1]]


def test_when_no_request_will_come_nothing_is_waited_for() -> None:
    subject = batcher(DELAY_S)
    fill(subject, (1.0, "a", 1))
    subject.close()
    assert ids(subject.next(1.0)) == [0]


def test_with_one_row_per_batch_every_request_runs_alone_and_at_once() -> None:
    subject = batcher(DELAY_S)
    fill(subject, (1.0, "a", 1), (1.0, "a", 1))
    subject.limit(Limits(1, MAX_TOKENS))
    assert [ids(subject.next(1.0)) for _ in range(2)] == [[0], [1]]


def test_a_limit_can_be_lowered_and_never_raised() -> None:
    subject = batcher()
    for rows in (3, 5):
        subject.limit(Limits(rows, MAX_TOKENS))
    fill(subject, *[(0, "a", 1)] * 4)
    assert [ids(subject.next(9)) for _ in range(2)] == [[0, 1, 2], [3]]


def test_a_cancelled_request_is_forgotten() -> None:
    subject = batcher()
    fill(subject, (0, "a", 1), (0, "a", 1), (0, "b", 1))
    for request_id in (1, 2, 2, 7):
        subject.cancel(request_id)
    assert ids(subject.next(9)) == [0]
    assert subject.next(9) is None


def test_late_requests_are_taken_out() -> None:
    subject = batcher()
    fill(subject, (0, "a", 1), (0, "a", 1), (0, "b", 1))
    in_time = pending(3, 0.0)
    in_time.deadline = 5.0
    subject.add(in_time, backlog=0)
    assert subject.take_late(4.9) == []
    assert subject.take_late(5.0) == [in_time]
    assert [ids(subject.next(9)) for _ in range(2)] == [[0, 1], [2]]


@given(
    requests=st.lists(
        st.tuples(
            st.floats(0, 0.003), st.sampled_from("abc"), st.integers(1, 6), st.integers(0, 40)
        ),
        max_size=40,
    ),
    adaptive=st.booleans(),
)
def test_everybody_is_served_in_turn_and_in_time(
    requests: list[tuple[float, str, int, int]], adaptive: bool
) -> None:
    pace = AdaptivePace(DELAY_S) if adaptive else FixedPace(DELAY_S)
    subject, now, served = Batcher(Limits(8, MAX_TOKENS), pace), 0.0, []
    for number, (after_s, key, rows, length) in enumerate(requests):
        now += after_s
        request = pending(number, now, key, rows)
        request.length = length
        subject.add(request, backlog=0)
        if number % 3 == 2 and isinstance(todo := subject.next(now), Run):
            served.append(todo.batch)
            subject.answered(todo, now, now)
    while todo := subject.next(now):
        if isinstance(todo, Wait):
            assert now < todo.until <= now + DELAY_S
            now = todo.until
        else:
            served.append(todo.batch)
    for batch in served:
        assert len({request.batch_key for request in batch}) == 1
        rows, longest = sum(r.rows for r in batch), max(r.length for r in batch)
        assert len(batch) == 1 or (rows <= 8 and rows * longest <= MAX_TOKENS)
    order = [request for batch in served for request in batch]
    assert sorted(request.id for request in order) == list(range(len(requests)))
    for key in "abc":
        turns = [request.id for request in order if request.batch_key == key]
        assert turns == sorted(turns)
