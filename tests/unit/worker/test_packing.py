"""When a model has proven used, and what becomes of it then."""

from typing import Any

import pytest

from component import harness
from component.fake_engine import SIGNATURE, FakeEngine
from snoozeml.core.plan import WorkerFailure
from snoozeml.worker.packing import Packing

LONG_S = 30.0


def packing(engine: FakeEngine, **settings: Any) -> Packing:
    notices: list[WorkerFailure] = []
    return Packing(harness.spec(SIGNATURE, **settings), engine, notices)


@pytest.mark.parametrize(
    ("ends_of_runs", "is_used"),
    [
        ([1.0], False),
        ([1.0, 1.1], False),
        ([1.0, 1.1, 1.2], True),
        ([1.0, 2.9], False),
        ([1.0, 3.0], True),
        ([9.0], False),
    ],
)
def test_a_model_is_packed_after_some_runs_or_one_long_after_the_first(
    ends_of_runs: list[float], is_used: bool
) -> None:
    engine = FakeEngine()
    subject = packing(engine, pack_after_runs=3, pack_after_s=2.0)
    for now in ends_of_runs:
        assert not engine.packed.is_set()
        subject.ran(now)
    assert engine.packed.wait(LONG_S if is_used else 0.05) is is_used


def test_a_model_is_packed_once() -> None:
    engine = FakeEngine()
    subject = packing(engine, pack_after_runs=1)
    subject.ran(0.0)
    assert engine.packed.wait(LONG_S)
    engine.packed.clear()
    subject.ran(100.0)
    assert not engine.packed.wait(0.05)


def test_a_model_that_may_not_take_more_memory_is_not_packed() -> None:
    engine = FakeEngine()
    packing(engine, pack_after_runs=1, may_pack=False).ran(0.0)
    assert not engine.packed.wait(0.05)
