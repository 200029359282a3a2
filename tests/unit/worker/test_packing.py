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
def test_a_model_proves_used_by_some_runs_or_one_long_after_the_first(
    ends_of_runs: list[float], is_used: bool
) -> None:
    engine = FakeEngine()
    subject = packing(engine, pack_after_runs=3, pack_after_s=2.0)
    *early, last = ends_of_runs
    assert not any(subject.has_proven_used(now) for now in early)
    assert subject.has_proven_used(last) is is_used
    assert not engine.packed.is_set(), "there might be no room"


def test_where_there_was_no_room_it_asks_again_a_minute_later() -> None:
    subject = packing(FakeEngine(), pack_after_runs=1)
    asked_at = [now for now in range(200) if subject.has_proven_used(now)]
    assert asked_at == [0, 60, 120, 180]


def test_a_model_is_packed_once_there_is_room_and_asks_no_more() -> None:
    engine = FakeEngine()
    subject = packing(engine, pack_after_runs=1)
    assert subject.has_proven_used(0.0)
    subject.start()
    assert engine.packed.wait(LONG_S)
    assert not subject.has_proven_used(1000.0)
    engine.packed.clear()
    subject.start()
    assert not engine.packed.wait(0.05)


def test_a_model_that_has_nothing_to_gain_does_not_ask() -> None:
    engine = FakeEngine()
    engine.is_packable = False
    assert not packing(engine, pack_after_runs=1).has_proven_used(0.0)
