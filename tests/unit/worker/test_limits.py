"""What bounds a batch, in rows and in tokens."""

from hypothesis import given
from hypothesis import strategies as st

from snoozeml.worker.limits import Limits

COUNT = st.integers(1, 10_000)


@given(COUNT, COUNT, COUNT)
def test_rows_keep_both_limits_and_there_is_always_one(rows: int, tokens: int, length: int) -> None:
    limits = Limits(rows, tokens)
    most = limits.rows_of(length)
    assert 1 <= most <= rows
    assert most == 1 or most * length <= tokens
    assert most == rows or (most + 1) * length > tokens


def test_tokens_do_not_bound_rows_without_a_length() -> None:
    assert Limits(16, 1).rows_of(0) == 16


@given(st.integers(2, 100), st.integers(0, 100))
def test_half_of_what_was_too_much_is_allowed(rows: int, length: int) -> None:
    before = Limits(100, 10_000)
    assert before.halved(rows, length).rows_of(length) == rows // 2


def test_what_became_tighter_is_told_in_its_own_unit() -> None:
    before = Limits(16, 4096)
    assert before.halved(8, 0).compared_to(before) == "4 rows, not 16"
    assert before.halved(8, 100).compared_to(before) == "400 tokens, not 4096"
