"""Waiting for company: worth it where requests are on their way, free where they are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.worker.pacing import AdaptivePace, FixedPace, Group, RunCosts
from unit.worker.simulation import MAX_ROWS, World, simulate

DELAY_S = 0.010

TINY = World(clients=64, think_s=2e-4, daemon_s=35e-6, fixed_s=50e-6, row_s=8e-6)
TINY_ON_A_SLOW_WORKER = TINY._replace(daemon_s=5e-6)
ENCODER = World(clients=64, think_s=2e-4, daemon_s=35e-6, fixed_s=5e-3, row_s=1e-3)
IMAGES = World(clients=64, think_s=2e-4, daemon_s=100e-6, fixed_s=2e-4, row_s=5e-3)
WORLDS = [TINY, TINY_ON_A_SLOW_WORKER, ENCODER, IMAGES]


def adaptive() -> AdaptivePace:
    return AdaptivePace(DELAY_S)


def group(requests: int, rows: int, oldest_at: float, *, is_all: bool) -> Group:
    return Group(requests, rows, MAX_ROWS - rows, oldest_at, is_all)


@pytest.mark.parametrize("world", WORLDS)
def test_a_single_client_never_waits(world: World) -> None:
    outcome = simulate(world._replace(clients=1), adaptive())
    assert outcome.worst_s == pytest.approx(world.fixed_s + world.row_s)


@pytest.mark.parametrize("world", WORLDS)
def test_a_crowd_is_served_as_fast_as_with_the_best_fixed_delay(world: World) -> None:
    delays = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.010)
    best = max(simulate(world, FixedPace(delay)).requests_per_s for delay in delays)
    assert simulate(world, adaptive()).requests_per_s >= 0.95 * best


def test_a_crowd_fills_the_batches_of_a_worker_with_time_to_spare() -> None:
    assert simulate(TINY, FixedPace(0.0)).mean_rows < 4
    assert simulate(TINY, adaptive()).mean_rows > 14


def test_few_clients_of_a_model_with_a_high_fixed_cost_share_their_runs() -> None:
    world = ENCODER._replace(clients=4)
    at_once, waiting = simulate(world, FixedPace(0.0)), simulate(world, adaptive())
    assert waiting.mean_rows > 3.5 > at_once.mean_rows
    assert waiting.requests_per_s > 1.2 * at_once.requests_per_s


@pytest.mark.parametrize("clients", [2, 3, 8])
def test_nobody_waits_for_clients_that_think_longer_than_merging_saves(clients: int) -> None:
    world = TINY._replace(clients=clients, think_s=20e-3)
    at_once, waiting = simulate(world, FixedPace(0.0)), simulate(world, adaptive())
    assert waiting.median_s <= 1.05 * at_once.median_s


def after_a_crowd(clients: int = 40) -> AdaptivePace:
    """A pace that has seen many requests, 10 µs apart, and one run of 200 µs for all of them."""
    pace = adaptive()
    for number in range(clients):
        pace.arrived(number * 1e-5, backlog=0)
    pace.answered(clients, clients, started_at=4e-4, now=6e-4)
    return pace


def test_a_crowd_that_has_left_is_soon_forgotten() -> None:
    pace, now = after_a_crowd(), 8e-4
    while now < 0.05:
        pace.arrived(now, backlog=0)
        run_at = max(pace.run_at(group(1, 1, now, is_all=True), now), now)
        assert run_at - now <= DELAY_S
        if now > 6e-4 + DELAY_S:
            assert run_at == now
        pace.answered(1, 1, started_at=run_at, now=run_at + 1e-4)
        now = run_at + 4e-4


def test_a_worker_with_other_work_in_hand_never_idles() -> None:
    pace = after_a_crowd()
    pace.arrived(7e-4, backlog=0)
    assert pace.run_at(group(1, 1, 7e-4, is_all=False), now=7e-4) <= 7e-4
    assert pace.run_at(group(1, 1, 7e-4, is_all=True), now=7e-4) > 7e-4


def test_a_backlog_in_the_daemon_is_company_on_its_way() -> None:
    pace = after_a_crowd(clients=40)
    for number in range(40):
        pace.arrived(7e-4 + number * 1e-6, backlog=0)
    assert pace.run_at(group(8, 8, 7e-4, is_all=True), now=8e-4) <= 8e-4
    pace.arrived(8e-4, backlog=5)
    assert pace.run_at(group(9, 9, 7e-4, is_all=True), now=8e-4) > 8e-4


@pytest.mark.parametrize("rows_each", [1, 4, 15])
def test_room_in_a_batch_is_counted_in_rows(rows_each: int) -> None:
    pace = after_a_crowd()
    pace.arrived(7e-4, backlog=0)
    waits = pace.run_at(group(1, rows_each, 7e-4, is_all=True), now=7e-4) > 7e-4
    assert waits == (2 * rows_each <= MAX_ROWS)


seconds = st.floats(0, 0.05)
events = st.lists(
    st.one_of(
        st.tuples(st.just("arrived"), seconds, st.integers(0, 40)),
        st.tuples(st.just("answered"), seconds, st.integers(1, 40)),
        st.tuples(st.just("asked"), seconds, st.integers(1, MAX_ROWS - 1)),
    ),
    max_size=60,
)


@given(events)
def test_no_request_waits_longer_than_allowed(events: list[tuple[str, float, int]]) -> None:
    pace, now = adaptive(), 0.0
    for what, after_s, number in events:
        started_at, now = now, now + after_s
        if what == "arrived":
            pace.arrived(now, backlog=number)
        elif what == "answered":
            pace.answered(number, number, started_at, now)
        else:
            run_at = pace.run_at(group(1, number, started_at, is_all=True), now)
            assert run_at <= max(now, started_at + DELAY_S)


def test_costs_are_the_line_through_the_runs() -> None:
    costs = RunCosts()
    assert costs.fit() == (0, 0)
    for rows in (1, 5, 16, 2, 9) * 10:
        costs.learn(rows, 0.004 + 0.001 * rows)
    assert costs.fit() == pytest.approx((0.004, 0.001))


def test_runs_of_one_size_do_not_tell_fixed_cost_from_cost_per_row() -> None:
    costs = RunCosts()
    for _ in range(1000):
        costs.learn(16, 0.020)
    assert costs.fit() == pytest.approx((0.020, 0))


@given(st.lists(st.tuples(st.integers(1, 16), st.floats(0, 10)), min_size=1))
def test_no_cost_is_negative_or_above_that_of_a_run(runs: list[tuple[int, float]]) -> None:
    costs = RunCosts()
    for rows, run_s in runs:
        costs.learn(rows, run_s)
    longest_s = max(run_s for _, run_s in runs) * (1 + 1e-9)
    fixed_s, row_s = costs.fit()
    assert -1e-9 <= fixed_s <= longest_s
    assert 0 <= row_s <= longest_s
