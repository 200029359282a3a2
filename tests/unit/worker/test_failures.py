"""How failures travel from a worker to the daemon, which believes only so much."""

from typing import Final

import pytest

from snoozeml.core.plan import WorkerFailure
from snoozeml.errors import InferenceFailed
from snoozeml.lifecycle.failures import failure_in
from snoozeml.worker.failures import ModelTraceback, encoded, failure_of

_MANY: Final = 5_000_000


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize("char", ["x", "\1", "\U0001f634", "\udcff"])
@pytest.mark.parametrize("by_model", [True, False])
def test_a_long_failure_travels_shortened(char: str, by_model: bool) -> None:
    words = f"begins {char * _MANY} ends"
    error = raised(RuntimeError(words))
    if by_model:
        error = raised(InferenceFailed(words), ModelTraceback(f"in predict\n{words}"))
    failure = failure_of(error)
    body = encoded(failure)
    assert len(body) < 256 * 1024
    arrived = failure_in(body)
    assert arrived.code == failure.code
    assert arrived.traceback is not None
    assert arrived.traceback.startswith("in predict" if by_model else "Traceback")
    assert arrived.traceback.rstrip().endswith("ends")


def test_a_notice_is_shortened_too() -> None:
    body = encoded(WorkerFailure(code="unbatchable", message="x" * _MANY))
    assert len(failure_in(body).message) <= 4096


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"code":1,"message":"x"}',
        b'{"code":"internal","message":"\xff"}',
        b'{"code":"internal","message":"\\ud800"}',
        b'{"code":"internal","message":"x","more":%b}' % (b"[" * 100_000),
        b'{"code":"internal","message":"%b"}' % (b"x" * _MANY),
    ],
)
def test_what_is_no_failure_is_taken_for_one_of_ours(body: bytes) -> None:
    failure = failure_in(body)
    assert failure.code == "internal"
    assert f"in {len(body)} bytes" in failure.message
    assert failure.traceback is None
