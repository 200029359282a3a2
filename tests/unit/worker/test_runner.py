"""Whatever a model does to batches, every request gets what it would have got alone."""

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.fake_engine import SIGNATURE, FakeEngine
from snoozeml.core.plan import WorkerFailure
from snoozeml.core.tensors import Signature
from snoozeml.errors import InferenceFailed, OutOfMemory
from snoozeml.wire.tensors import Array
from snoozeml.worker.agreement import agree
from snoozeml.worker.limits import Limits
from snoozeml.worker.rows import RowLayout
from unit.worker.running import (
    ALL,
    LAYOUT,
    MAX_ROWS,
    MAX_TOKENS,
    RAGGED,
    assert_equal,
    failure,
    ragged,
    request,
    runner,
)


def test_a_batch_is_one_run_along_every_batch_axis() -> None:
    engine = FakeEngine()
    subject = runner(engine)
    for _ in range(3):
        subject.run([request(1), request(2)])
    engine.runs.clear()
    batch = [request(rows, seed=rows) for rows in (1, 3, 2)]
    answers = subject.run(batch)
    assert engine.runs == [6]
    for answer, sent in zip(answers, batch, strict=True):
        assert answer.batch_rows == 6
        assert_equal(answer, FakeEngine().infer(sent.inference.inputs, sent.inference.outputs))


def test_the_first_merged_batches_are_verified_and_later_ones_are_not() -> None:
    engine = FakeEngine()
    subject = runner(engine)
    for _ in range(5):
        subject.run([request(1), request(2)])
    assert engine.runs == [3, 2, 3, 2, 3, 2, 3, 3]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("mixes rows", "'y' of a row depends on the rows beside it"),
        ("numbers rows", "'label' of a row depends on the rows beside it"),
        ("loses a row", r"'y' has the shape \[3, 3\] for 4 rows"),
        ("answers one number", r"'y' has the shape \[\] for 4 rows"),
        ("takes one row", "one row, please"),
    ],
)
def test_a_model_that_does_not_bear_merging_is_not_merged_again(how: str, why: str) -> None:
    engine = FakeEngine(how)
    notices: list[WorkerFailure] = []
    subject = runner(engine, notices=notices)
    batch = [request(1, seed=seed) for seed in range(4)]
    for answer, sent in zip(subject.run(batch), batch, strict=True):
        assert answer.batch_rows == 1
        assert_equal(answer, FakeEngine(how).infer(sent.inference.inputs, sent.inference.outputs))
    (notice,) = notices
    assert re.search(why, notice.message)
    assert subject.limits.rows == 1
    engine.runs.clear()
    subject.run([request(3 * MAX_ROWS)])
    assert engine.runs == [3 * MAX_ROWS]


def test_only_the_request_that_fails_alone_fails() -> None:
    subject = runner(FakeEngine("hates negatives"))
    batch = [request(1, seed=seed) for seed in range(3)]
    batch[1].inference.inputs["x"] = -batch[1].inference.inputs["x"]
    answers = subject.run(batch)
    assert "ValueError" in failure(answers[1]).message
    for index in (0, 2):
        assert_equal(answers[index], FakeEngine().infer(batch[index].inference.inputs, ALL))
    assert subject.limits.rows == MAX_ROWS


@pytest.mark.parametrize(
    ("room", "rows", "limit"),
    [
        (4, [2] * 4, 4),
        (3, [1] * 8, 2),
        (5, [1, 1, 1, 5], 4),
        (3, [1, 1, 6], 2),
        (2, [5], 2),
        (1, [8], 1),
        (7, [8 * MAX_ROWS], 4),
        (8, [8], 8),
    ],
)
def test_rows_that_there_is_no_memory_for_run_in_smaller_numbers_from_then_on(
    room: int, rows: list[int], limit: int
) -> None:
    engine, notices = FakeEngine(f"has room for {room}"), list[WorkerFailure]()
    subject = runner(engine, notices=notices)
    batch = [request(n, seed=seed) for seed, n in enumerate(rows)]
    for answer, sent in zip(subject.run(batch), batch, strict=True):
        assert_equal(answer, FakeEngine().infer(sent.inference.inputs, ALL))
        assert answer.batch_rows <= room
    assert subject.limits.rows == limit
    assert [notice.code for notice in notices] == ["out_of_memory"] * (limit < MAX_ROWS)
    assert all(f"at most {limit} rows, not {MAX_ROWS}" in notice.message for notice in notices)
    engine.runs.clear()
    subject.run(batch)
    assert max(engine.runs) <= limit


def test_rows_that_fit_nowhere_leave_the_limit_to_others() -> None:
    notices: list[WorkerFailure] = []
    subject = runner(FakeEngine("has room for 0"), notices=notices)
    for batch in ([request(2), request(2), request(3)], [request(3 * MAX_ROWS)], [request(1)]):
        assert {failure(a).code for a in subject.run(batch)} == {OutOfMemory.code}
    assert (subject.limits.rows, notices) == (MAX_ROWS, [])


def test_what_cannot_be_cut_and_has_no_room_fails() -> None:
    subject = runner(FakeEngine("has room for 2"), "alone")
    (answer,) = subject.run([request(3)])
    assert failure(answer).code == OutOfMemory.code


@pytest.mark.parametrize("how", ["hates negatives", "changes datatype", "has room for 0"])
def test_a_failed_request_leaves_nothing_behind(how: str) -> None:
    sent = request(1)
    sent.inference.inputs["x"] *= -1
    left = weakref.ref(sent.inference.inputs["x"])
    gc.disable()  # it counts objects, not their bytes, and may come when memory has run out
    try:
        (answer,) = runner(FakeEngine(how)).run([sent])
        assert failure(answer)
        del sent
        assert left() is None
    finally:
        gc.enable()


def test_an_output_of_another_datatype_fails() -> None:
    (answer,) = runner(FakeEngine("changes datatype")).run([request(1)])
    assert failure(answer).code == InferenceFailed.code
    assert re.search(r"float64, .* float32", failure(answer).message)


def test_values_that_are_not_numbers_agree_with_themselves() -> None:
    subject = runner(FakeEngine("is not a number"))
    subject.run([request(1), request(1)])
    assert subject.limits.rows == MAX_ROWS


rows_of_requests = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(
    how=st.sampled_from(
        ["well", "mixes rows", "numbers rows", "loses a row", "takes one row", "hates negatives"]
        + [f"has room for {rows}" for rows in range(8)]
    ),
    batches=st.lists(rows_of_requests, min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_every_answer_equals_that_of_its_request_alone(
    how: str, batches: list[list[int]], seed: int
) -> None:
    subject = runner(FakeEngine(how))
    for number, rows in enumerate(batches):
        batch = [request(n, seed=seed + 10 * number + i) for i, n in enumerate(rows)]
        for answer, sent in zip(subject.run(batch), batch, strict=True):
            (alone,) = runner(FakeEngine(how)).run([sent])
            if isinstance(alone.result, WorkerFailure):
                assert failure(answer).message == alone.result.message
            else:
                assert_equal(answer, alone.result)


def key(**changes: Any) -> object:
    sent = request(2, outputs=changes.pop("outputs", ALL))
    inputs = {**sent.inference.inputs, **changes}
    return LAYOUT.batch_key(inputs, sent.inference.outputs)


def test_rows_do_not_matter_to_the_batch_key_and_everything_else_does() -> None:
    rows = {"x": np.ones((7, 3), np.float32), "state": np.ones((2, 7), np.float32)}
    assert key(**rows) == key()
    assert key(x=np.ones((2, 4), np.float32)) != key()
    assert key(scale=np.array(3, np.float32)) != key()
    assert key(outputs=("y",)) != key()
    assert key(outputs=("label", "next_state", "y")) != key()


def test_an_output_without_batch_axis_shares_with_nobody() -> None:
    inputs = request(1).inference.inputs
    loose = Signature(SIGNATURE.inputs, (SIGNATURE.outputs[0], SIGNATURE.inputs[2]))
    assert RowLayout(loose).batch_key(inputs, ("y",)) is not None
    assert RowLayout(loose).batch_key(inputs, ("y", "scale")) is None


def test_no_rows_make_empty_outputs_of_the_dimensions_that_are_known() -> None:
    inputs = request(0, columns=5).inference.inputs
    assert LAYOUT.count(inputs) == 0
    y, next_state, label = LAYOUT.empty(inputs, ALL)
    assert [(array.shape, array.dtype.name) for array in (y, next_state, label)] == [
        ((0, 5), "float32"),
        ((2, 0), "float32"),
        ((0,), "int64"),
    ]


@pytest.mark.parametrize(
    ("batched", "alone", "equal"),
    [
        (np.array([1, 1e-6], np.float32), np.array([1, 2e-6], np.float32), True),
        (np.array([1.0005], np.float32), np.array([1], np.float32), True),
        (np.array([1.01], np.float32), np.array([1], np.float32), False),
        (np.array([1 + 1e-6], np.float64), np.array([1], np.float64), False),
        (np.array([1.005], np.float16), np.array([1], np.float16), True),
        (np.array([np.nan, np.inf], np.float32), np.array([np.nan, np.inf], np.float32), True),
        (np.array([np.nan], np.float32), np.array([0], np.float32), False),
        (np.array([np.inf], np.float32), np.array([-np.inf], np.float32), False),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), True),
        (np.zeros((1, 3), np.float32), np.zeros((3,), np.float32), False),
        (np.array([1], np.int64), np.array([2], np.int64), False),
        (np.array(["a"], object), np.array(["a"], object), True),
        (np.array(["a"], object), np.array(["b"], object), False),
    ],
)
def test_agreement_allows_rounding_and_nothing_else(
    batched: Array, alone: Array, equal: bool
) -> None:
    assert agree(batched, alone) is equal


@given(sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=6))
def test_requests_of_different_lengths_get_what_they_get_alone(
    sizes: list[tuple[int, int]],
) -> None:
    notices: list[WorkerFailure] = []
    subject = runner(FakeEngine(), signature=RAGGED, notices=notices)
    batch = [ragged(rows, columns, seed) for seed, (rows, columns) in enumerate(sizes)]
    for answer, sent in zip(subject.run(batch), batch, strict=True):
        assert_equal(answer, FakeEngine().infer(sent.inference.inputs, sent.inference.outputs))
    assert notices == []


def test_of_different_lengths_the_one_that_was_padded_most_is_verified() -> None:
    engine, notices = FakeEngine("pads with noise"), list[WorkerFailure]()
    subject = runner(engine, signature=RAGGED, notices=notices)
    batch = [ragged(1, 5), ragged(2, 2), ragged(1, 5)]
    for answer, sent in zip(subject.run(batch), batch, strict=True):
        assert_equal(
            answer,
            FakeEngine("pads with noise").infer(sent.inference.inputs, sent.inference.outputs),
        )
    assert engine.runs == [4, 2, 1, 2, 1]
    assert [notice.code for notice in notices] == ["unbatchable"]


def test_what_lacks_memory_teaches_a_limit_of_tokens_where_rows_have_a_length() -> None:
    engine, notices = FakeEngine("has room for 3"), list[WorkerFailure]()
    subject = runner(engine, signature=RAGGED, notices=notices)
    answers = subject.run([ragged(1, 8), ragged(1, 10), ragged(1, 10), ragged(1, 4)])
    assert [answer.batch_rows for answer in answers] == [2, 2, 2, 2]
    assert subject.limits == Limits(MAX_ROWS, 20)
    assert [n.message.rpartition(": ")[2] for n in notices] == [
        f"from now on at most 20 tokens, not {MAX_TOKENS}"
    ]
