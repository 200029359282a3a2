"""Requests larger than a batch get what they would get from one run."""

import pytest

from component.fake_engine import FakeEngine
from snoozeml.core.plan import WorkerFailure
from snoozeml.errors import InferenceFailed
from unit.worker.running import (
    ALL,
    MAX_ROWS,
    MAX_TOKENS,
    RAGGED,
    assert_equal,
    failure,
    ragged,
    request,
    results,
    runner,
)


@pytest.mark.parametrize("rows", [MAX_ROWS, MAX_ROWS + 1, 3 * MAX_ROWS])
def test_a_large_request_runs_in_pieces(rows: int) -> None:
    engine = FakeEngine()
    subject, sent = runner(engine), request(rows)
    for _ in range(3):
        subject.run([sent])
    engine.runs.clear()
    (answer,) = subject.run([sent])
    assert max(engine.runs) == answer.batch_rows == MAX_ROWS
    assert sum(engine.runs) == rows
    assert_equal(answer, FakeEngine().infer(sent.inference.inputs, ALL))


def test_the_first_cut_requests_are_verified_across_a_cut_and_later_ones_are_not() -> None:
    engine = FakeEngine()
    subject = runner(engine)
    for _ in range(4):
        subject.run([request(MAX_ROWS + 2)])
    verified = [MAX_ROWS, 2, MAX_ROWS // 2 + 2]
    assert engine.runs == [*verified * 3, MAX_ROWS, 2]


@pytest.mark.parametrize(
    "how", ["mixes rows", "numbers rows", "adds up rows", "answers one number"]
)
@pytest.mark.parametrize("rows", [MAX_ROWS + 1, 2 * MAX_ROWS, 5 * MAX_ROWS])
def test_a_model_that_does_not_bear_cutting_answers_from_one_run(how: str, rows: int) -> None:
    engine, notices = FakeEngine(how), list[WorkerFailure]()
    subject, sent = runner(engine, notices=notices), request(rows)
    for _ in range(2):
        (answer,) = subject.run([sent])
        assert_equal(answer, FakeEngine(how).infer(sent.inference.inputs, ALL))
        assert engine.runs[-1] == rows
    assert [notice.code for notice in notices] == ["unbatchable"]
    assert subject.limits.rows == 1


def test_rows_that_are_run_again_are_what_they_were() -> None:
    (answer,) = runner(FakeEngine("works in place")).run([request(MAX_ROWS + 1)])
    wanted = FakeEngine("mixes rows").infer(request(MAX_ROWS + 1).inference.inputs, ALL)
    assert_equal(answer, wanted)


def test_where_one_row_is_a_batch_two_are_run_to_verify_a_cut() -> None:
    engine, sent = FakeEngine("mixes rows"), request(5)
    (answer,) = runner(engine, max_rows=1).run([sent])
    assert engine.runs == [1, 1, 1, 1, 1, 2, 5]
    assert_equal(answer, FakeEngine("mixes rows").infer(sent.inference.inputs, ALL))


@pytest.mark.parametrize("how", ["has room for 1", "takes one row"])
def test_where_two_rows_cannot_run_together_a_cut_is_believed(how: str) -> None:
    notices: list[WorkerFailure] = []
    sent = request(5)
    (answer,) = runner(FakeEngine(how), notices=notices, max_rows=1).run([sent])
    assert_equal(answer, FakeEngine().infer(sent.inference.inputs, ALL))
    assert notices == []


def test_pieces_that_lose_rows_are_never_put_together() -> None:
    engine = FakeEngine("loses a row")
    subject = runner(engine)
    sent = request(MAX_ROWS + 1)
    (answer,) = subject.run([sent])
    assert_equal(answer, FakeEngine("loses a row").infer(sent.inference.inputs, ALL))
    assert subject.limits.rows == 1


def test_row_by_row_every_row_is_a_run() -> None:
    engine = FakeEngine("takes one row")
    sent = request(5)
    (answer,) = runner(engine, "row_by_row").run([sent])
    assert engine.runs == [1] * 5
    assert answer.batch_rows == 1
    assert_equal(answer, FakeEngine().infer(sent.inference.inputs, ALL))


def test_row_by_row_an_output_without_rows_fails() -> None:
    (answer,) = runner(FakeEngine("answers one number"), "row_by_row").run([request(2)])
    assert failure(answer).code == InferenceFailed.code
    assert "one row at a time" in failure(answer).message


def test_a_large_request_of_long_rows_is_cut_by_tokens() -> None:
    engine = FakeEngine()
    sent = ragged(5, 30)
    (answer,) = runner(engine, signature=RAGGED).run([sent])
    assert (engine.runs, answer.batch_rows) == ([2, 2, 1, 2], 2)
    assert_equal(answer, FakeEngine().infer(sent.inference.inputs, sent.inference.outputs))


def test_a_row_longer_than_a_batch_runs_all_the_same() -> None:
    engine = FakeEngine()
    (answer,) = runner(engine, signature=RAGGED).run([ragged(2, MAX_TOKENS + 1)])
    assert engine.runs == [1, 1]
    assert results(answer)[0].shape == (2, MAX_TOKENS + 1)
