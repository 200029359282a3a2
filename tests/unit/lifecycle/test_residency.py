"""Who may be in memory: single cases, then what holds whatever the situation."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from snoozeml.lifecycle.residency import (
    Admit,
    Budget,
    Evict,
    Resident,
    TooLarge,
    Wait,
    Wanted,
    make_room,
)

NOW = 1000.0
WANTED = Wanted(model_id="new", expected_bytes=100, is_new=True)
ROOMY = Budget(models=10, memory_bytes=10_000, free_bytes=None)


def resident(
    name: str, *, size: int = 100, used_at: float = 0.0, may_leave_at: float | None = 0.0
) -> Resident:
    return Resident(model_id=name, memory_bytes=size, used_at=used_at, may_leave_at=may_leave_at)


def test_where_there_is_room_nobody_leaves() -> None:
    assert make_room(WANTED, [resident("a")], ROOMY, NOW) == Admit()


def test_the_longest_unused_leaves_first_and_no_more_than_needed() -> None:
    full = replace(ROOMY, models=3)
    residents = [resident("a", used_at=3), resident("b", used_at=1), resident("c", used_at=2)]
    assert make_room(WANTED, residents, full, NOW) == Evict(("b",))


def test_memory_may_take_several_victims() -> None:
    tight = replace(ROOMY, memory_bytes=300)
    residents = [resident("a", used_at=1), resident("b", used_at=2), resident("c", used_at=3)]
    assert make_room(replace(WANTED, expected_bytes=150), residents, tight, NOW) == Evict(
        ("a", "b")
    )


def test_nobody_is_sent_away_in_vain() -> None:
    tight = replace(ROOMY, memory_bytes=300)
    residents = [resident("idle"), resident("busy", size=200, may_leave_at=None)]
    wanted = replace(WANTED, expected_bytes=250)
    assert make_room(wanted, residents, tight, NOW) == Wait(None, for_memory=True)


def test_a_model_that_is_too_young_is_waited_for() -> None:
    full = replace(ROOMY, models=1)
    young = resident("young", may_leave_at=NOW + 7)
    assert make_room(WANTED, [young], full, NOW) == Wait(NOW + 7, for_memory=False)


def test_what_is_leaving_already_is_waited_for_rather_than_others_sent_after_it() -> None:
    full = replace(ROOMY, models=2)
    leaving = replace(resident("leaving", may_leave_at=None), leaving=True)
    assert make_room(WANTED, [leaving, resident("idle")], full, NOW) == Wait(None, for_memory=False)


def test_what_the_machine_has_left_counts_too() -> None:
    crowded = replace(ROOMY, free_bytes=50)
    assert make_room(WANTED, [resident("idle")], crowded, NOW) == Evict(("idle",))


def test_a_model_larger_than_everything_is_refused_at_once() -> None:
    wanted = replace(WANTED, expected_bytes=10_001)
    assert make_room(wanted, [], ROOMY, NOW) == TooLarge(10_000)


def test_another_replica_needs_memory_but_no_place() -> None:
    full = replace(ROOMY, models=1)
    replica = Wanted(model_id="a", expected_bytes=100, is_new=False)
    assert make_room(replica, [resident("a", may_leave_at=None)], full, NOW) == Admit()


residents_ = st.lists(
    st.builds(
        Resident,
        model_id=st.uuids().map(str),
        memory_bytes=st.integers(0, 300),
        used_at=st.floats(0, NOW),
        may_leave_at=st.none() | st.floats(0, 2 * NOW),
        leaving=st.booleans(),
    ).map(lambda r: replace(r, may_leave_at=None) if r.leaving else r),
    max_size=8,
)
budgets = st.builds(
    Budget,
    models=st.integers(1, 8),
    memory_bytes=st.integers(50, 2000),
    free_bytes=st.none() | st.integers(0, 2000),
)


@given(residents_, budgets, st.integers(0, 2500))
def test_whatever_happens_nobody_is_wronged(
    residents: list[Resident], budget: Budget, expected: int
) -> None:
    wanted = replace(WANTED, expected_bytes=expected)
    decision = make_room(wanted, residents, budget, NOW)
    by_id = {r.model_id: r for r in residents}
    taken = sum(r.memory_bytes for r in residents)
    match decision:
        case Admit():
            assert len(residents) < budget.models
            assert taken + expected <= budget.memory_bytes
            assert budget.free_bytes is None or expected <= budget.free_bytes
        case Evict(model_ids):
            victims = [by_id[model_id] for model_id in model_ids]
            assert victims
            for victim in victims:
                assert not victim.leaving
                assert victim.may_leave_at is not None
                assert victim.may_leave_at <= NOW
            freed = [r for r in residents if r.leaving] + victims
            left = taken - sum(r.memory_bytes for r in freed)
            assert left + expected <= budget.memory_bytes
            assert len(residents) - len(freed) < budget.models
            spared = {r.used_at for r in residents if r.may_leave_at is not None}
            assert all(v.used_at <= max(spared) for v in victims)
        case Wait(until):
            assert until is None or until > NOW
        case TooLarge(limit_bytes):
            assert expected > limit_bytes == budget.memory_bytes


@given(residents_, budgets, st.integers(0, 2000))
def test_a_model_that_fits_alone_gets_in_at_last(
    residents: list[Resident], budget: Budget, expected: int
) -> None:
    """Once everybody has become idle and old enough, a few evictions make room."""
    budget = replace(budget, free_bytes=None)
    wanted = replace(WANTED, expected_bytes=min(expected, budget.memory_bytes))
    idle = [replace(r, may_leave_at=NOW, leaving=False) for r in residents]
    for _ in range(len(idle) + 1):
        match make_room(wanted, idle, budget, NOW):
            case Admit():
                return
            case Evict(model_ids):
                idle = [r for r in idle if r.model_id not in model_ids]
    raise AssertionError("never admitted")
