"""Who may be in memory: single cases, then what holds whatever the situation."""

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from snoozeml.lifecycle.residency import (
    RAM,
    Admit,
    Budget,
    Evict,
    Holding,
    Pool,
    Resident,
    Sizes,
    TooLarge,
    Wait,
    Wanted,
    fitting,
    holding,
    make_room,
    neighbour_to_evict,
    room_at,
    total,
)

NOW = 1000.0
GPU, OTHER_GPU = "cuda:0", "cuda:1"


def wanted(size: int = 100, *, gpu: int | None = None, is_new: bool = True) -> Wanted:
    needs = {RAM: size} if gpu is None else {RAM: size, GPU: gpu}
    return Wanted(model_id="new", needs=needs, is_new=is_new)


def budget(*, models: int = 10, ram: int = 10_000, free: int | None = None, **gpus: Pool) -> Budget:
    pools = {RAM: Pool(ram, free)} | {f"cuda:{name[3:]}": pool for name, pool in gpus.items()}
    return Budget(models=models, pools=pools)


def resident(
    name: str,
    size: int = 100,
    *,
    gpu: int = 0,
    untaken: int = 0,
    used_at: float = 0.0,
    may_leave_at: float | None = 0.0,
) -> Resident:
    holds = Holding({RAM: size, GPU: gpu}, {GPU: untaken})
    return Resident(model_id=name, holds=holds, used_at=used_at, may_leave_at=may_leave_at)


def test_where_there_is_room_nobody_leaves() -> None:
    assert make_room(wanted(), [resident("a")], budget(), NOW) == Admit()


def test_the_longest_unused_leaves_first_and_no_more_than_needed() -> None:
    residents = [resident("a", used_at=3), resident("b", used_at=1), resident("c", used_at=2)]
    assert make_room(wanted(), residents, budget(models=3), NOW) == Evict(("b",))


def test_memory_may_take_several_victims() -> None:
    residents = [resident("a", used_at=1), resident("b", used_at=2), resident("c", used_at=3)]
    assert make_room(wanted(150), residents, budget(ram=300), NOW) == Evict(("a", "b"))


def test_a_small_one_stays_where_a_larger_one_has_to_leave_anyway() -> None:
    residents = [resident("small", 10, used_at=1), resident("large", 290, used_at=2)]
    assert make_room(wanted(200), residents, budget(ram=300), NOW) == Evict(("large",))


def test_nobody_is_sent_away_in_vain() -> None:
    residents = [resident("idle"), resident("busy", 200, may_leave_at=None)]
    assert make_room(wanted(250), residents, budget(ram=300), NOW) == Wait(None, short_of=RAM)


def test_where_only_pinned_models_are_in_the_way_waiting_is_in_vain() -> None:
    pinned = replace(resident("pinned", may_leave_at=None), stays=True)
    residents = [pinned, resident("busy", 150, may_leave_at=None)]
    for needs, in_vain in ((200, False), (201, True)):
        decision = make_room(wanted(needs), residents, budget(ram=300), NOW)
        assert decision == Wait(None, short_of=RAM, in_vain=in_vain)


def test_room_is_there_when_the_last_whose_leaving_is_needed_may_leave() -> None:
    residents = [
        resident("busy", may_leave_at=None),
        resident("young", may_leave_at=NOW + 7),
        resident("idle", may_leave_at=NOW - 7),
        replace(resident("pinned", may_leave_at=None), stays=True),
    ]
    full = budget(ram=400)
    at = [room_at(wanted(needs), residents, full, NOW) for needs in (100, 200, 300, 301)]
    assert at == [NOW, NOW + 7, math.inf, None]
    assert room_at(wanted(), residents, budget(), NOW) == NOW


def test_a_model_that_is_too_young_is_waited_for() -> None:
    young = resident("young", may_leave_at=NOW + 7)
    assert make_room(wanted(), [young], budget(models=1), NOW) == Wait(NOW + 7, short_of=None)


def test_what_is_leaving_already_is_waited_for_rather_than_others_sent_after_it() -> None:
    leaving = replace(resident("leaving", may_leave_at=None), leaving=True)
    decision = make_room(wanted(), [leaving, resident("idle")], budget(models=2), NOW)
    assert decision == Wait(None, short_of=None)


def test_what_the_machine_has_left_counts_too() -> None:
    assert make_room(wanted(), [resident("idle")], budget(free=50), NOW) == Evict(("idle",))


def test_a_model_larger_than_everything_is_refused_at_once() -> None:
    assert make_room(wanted(10_001), [], budget(), NOW) == TooLarge(RAM, 10_000)
    gpu = budget(gpu0=Pool(500, 500))
    assert make_room(wanted(gpu=501), [], gpu, NOW) == TooLarge(GPU, 500)


def test_another_replica_needs_memory_but_no_place() -> None:
    replica = replace(wanted(is_new=False), model_id="a")
    assert make_room(replica, [resident("a", may_leave_at=None)], budget(models=1), NOW) == Admit()


def test_a_device_that_is_full_is_freed_by_those_who_are_on_it() -> None:
    residents = [resident("elsewhere", 9_000, used_at=1), resident("on it", gpu=400, used_at=2)]
    full = budget(ram=100_000, gpu0=Pool(500, None))
    assert make_room(wanted(gpu=200), residents, full, NOW) == Evict(("on it",))


def test_both_memories_are_freed_at_once() -> None:
    residents = [resident("a", 5_000, used_at=1), resident("b", gpu=400, used_at=2)]
    full = budget(ram=5_010, gpu0=Pool(500, None))
    assert make_room(wanted(gpu=200), residents, full, NOW) == Evict(("a", "b"))


def test_what_others_take_of_a_device_counts_too() -> None:
    taken_by_a_game = budget(gpu0=Pool(800, 100))
    in_vain = Wait(None, short_of=GPU, in_vain=True)
    assert make_room(wanted(gpu=200), [], taken_by_a_game, NOW) == in_vain


def test_what_a_loading_neighbour_will_take_is_not_free() -> None:
    loading = resident("loading", gpu=300, untaken=300, may_leave_at=None)
    empty = budget(gpu0=Pool(1000, 400))
    assert make_room(wanted(gpu=200), [loading], empty, NOW) == Wait(None, short_of=GPU)
    loaded = resident("loaded", gpu=300, may_leave_at=None)
    assert make_room(wanted(gpu=200), [loaded], empty, NOW) == Admit()


def test_a_device_that_nobody_counts_limits_nobody() -> None:
    assert make_room(wanted(gpu=10**12), [resident("a", gpu=10**12)], budget(), NOW) == Admit()


def test_a_worker_holds_what_it_was_given_until_more_is_counted() -> None:
    claimed = {RAM: 100, GPU: 300}
    assert holding(claimed, {}) == Holding(claimed, {GPU: 300})
    assert holding(claimed, {RAM: 20, GPU: 100}) == Holding(claimed, {GPU: 200})
    assert holding(claimed, {RAM: 150, GPU: 400}) == Holding({RAM: 150, GPU: 400}, {GPU: 0})


def test_a_worker_whose_memory_nobody_counts_has_taken_what_it_was_given() -> None:
    claimed = {RAM: 100, GPU: 300}
    assert holding(claimed, {RAM: 100, GPU: None}) == Holding(claimed, {GPU: 0})


def test_a_worker_is_found_out_to_be_on_a_device() -> None:
    assert holding({RAM: 9}, {RAM: 9, GPU: 7}) == Holding({RAM: 9, GPU: 7}, {GPU: 0})


def test_whoever_runs_out_of_memory_is_helped_by_a_neighbour_on_its_device() -> None:
    ram_only, young = resident("ram", used_at=1), resident("young", gpu=1, may_leave_at=NOW + 1)
    on_device = resident("device", gpu=100, used_at=2)
    neighbours = [ram_only, young, on_device]
    assert neighbour_to_evict({RAM: 1, GPU: 1}, neighbours, NOW) == on_device
    assert neighbour_to_evict({RAM: 1}, neighbours, NOW) == ram_only
    assert neighbour_to_evict({RAM: 1, GPU: 1}, [ram_only, young], NOW) == ram_only
    assert neighbour_to_evict({RAM: 1}, [young], NOW) is None


# Whatever the situation


def sizes(at_most: int) -> st.SearchStrategy[Sizes]:
    return st.dictionaries(st.sampled_from([RAM, GPU, OTHER_GPU]), st.integers(0, at_most))


def untaken_of(takes: Sizes, share: float) -> Sizes:
    return {where: int(size * share) for where, size in takes.items() if where != RAM}


holdings = st.builds(
    lambda takes, share: Holding(takes, untaken_of(takes, share)), sizes(300), st.floats(0, 1)
)
residents_ = st.lists(
    st.builds(
        Resident,
        model_id=st.uuids().map(str),
        holds=holdings,
        used_at=st.floats(0, NOW),
        may_leave_at=st.none() | st.floats(0, 2 * NOW),
        leaving=st.booleans(),
    ).map(lambda r: replace(r, may_leave_at=None) if r.leaving else r),
    max_size=8,
)
pools_ = st.builds(Pool, st.integers(50, 2000), st.none() | st.integers(0, 2000))
budgets = st.builds(
    Budget,
    models=st.integers(1, 8),
    pools=st.dictionaries(st.sampled_from([RAM, GPU, OTHER_GPU]), pools_),
)
wishes = sizes(2500).map(lambda needs: Wanted(model_id="new", needs=needs, is_new=True))


def fits(wish: Wanted, residents: list[Resident], limits: Budget, freed: Mapping[str, int]) -> bool:
    """Whether there is room, said in other words than those of the code.

    Args:
        freed: what the machine and the devices will have got back when it is started.
    """
    taken = total(r.holds.takes for r in residents)
    untaken = total(r.holds.untaken for r in residents)
    for where, pool in limits.pools.items():
        if (need := wish.needs.get(where, 0)) == 0:
            continue
        if taken.get(where, 0) + need > pool.limit_bytes:
            return False
        if pool.free_bytes is not None:
            free = pool.free_bytes + freed.get(where, 0) - untaken.get(where, 0)
            if need > free:
                return False
    return len(residents) < limits.models


def freed_by(leavers: list[Resident]) -> dict[str, int]:
    """What becomes free when they go: what they have taken, not what they were only promised."""
    freed = total(r.holds.takes for r in leavers)
    for where, size in total(r.holds.untaken for r in leavers).items():
        freed[where] -= size
    return freed


@given(residents_, budgets, wishes)
def test_whatever_happens_nobody_is_wronged(
    residents: list[Resident], limits: Budget, wish: Wanted
) -> None:
    match make_room(wish, residents, limits, NOW):
        case Admit():
            assert fits(wish, residents, limits, {})
        case Evict(model_ids):
            assert not fits(wish, residents, limits, {})
            victims = [r for r in residents if r.model_id in model_ids]
            assert len(victims) == len(model_ids) > 0
            assert all(victim.may_leave(NOW) for victim in victims)
            leavers = [r for r in residents if r.leaving] + victims
            rest = [r for r in residents if r not in leavers]
            assert fits(wish, rest, limits, freed_by(leavers))
            for spared in victims:
                left = [r for r in leavers if r is not spared]
                assert not fits(wish, [*rest, spared], limits, freed_by(left)), "in vain"
        case Wait(until, short_of):
            assert until is None or until > NOW
            assert short_of is None or wish.needs[short_of] > 0
            assert not fits(wish, residents, limits, {})
        case TooLarge(where, limit_bytes):
            assert wish.needs[where] > limit_bytes == limits.pools[where].limit_bytes


@given(residents_, budgets, wishes)
def test_nobody_waits_while_those_who_may_leave_would_make_room(
    residents: list[Resident], limits: Budget, wish: Wanted
) -> None:
    leavers = [r for r in residents if r.leaving or r.may_leave(NOW)]
    rest = [r for r in residents if r not in leavers]
    if isinstance(make_room(wish, residents, limits, NOW), Wait) and not any(
        r.leaving for r in residents
    ):
        assert not fits(wish, rest, limits, freed_by(leavers))


@given(residents_, budgets, wishes)
def test_a_model_that_fits_alone_gets_in_at_last(
    residents: list[Resident], limits: Budget, wish: Wanted
) -> None:
    """Once everybody has become idle and old enough, a few evictions make room."""
    pools = {where: pool._replace(free_bytes=None) for where, pool in limits.pools.items()}
    limits = replace(limits, pools=pools)
    needs = {
        where: min(need, pools[where].limit_bytes) if where in pools else need
        for where, need in wish.needs.items()
    }
    idle = [replace(r, may_leave_at=NOW, leaving=False) for r in residents]
    for _ in range(len(idle) + 1):
        match make_room(replace(wish, needs=needs), idle, limits, NOW):
            case Admit():
                return
            case Evict(model_ids):
                idle = [r for r in idle if r.model_id not in model_ids]
    raise AssertionError("never admitted")


@given(sizes(300), sizes(300), sizes(300))
def test_a_worker_asks_for_all_there_is_rather_than_for_what_there_is_not(
    expected: Sizes, floor: Sizes, limits: Sizes
) -> None:
    least = {where: min(size, floor.get(where, 0)) for where, size in expected.items()}
    asked = fitting(expected, least, limits)
    assert asked.keys() == expected.keys()
    for where, size in asked.items():
        assert least[where] <= size <= expected[where]
        if size > limits.get(where, size):
            assert size == least[where], "it cannot do without"


@given(sizes(300), sizes(300))
def test_a_holding_is_never_less_than_promised_or_counted(claimed: Sizes, counted: Sizes) -> None:
    takes, untaken = holding(claimed, counted)
    for where, size in takes.items():
        assert size == max(claimed.get(where, 0), counted.get(where, 0))
        assert untaken.get(where, 0) in (0, size - counted.get(where, 0))
    assert RAM not in untaken
