"""Routing, quarantine, thrashing and memory limits: a few lines each."""

from typing import NamedTuple

import pytest

from snoozeml.lifecycle.memory import available_bytes, parse_limit, total_bytes
from snoozeml.lifecycle.quarantine import Quarantine
from snoozeml.lifecycle.routing import routing
from snoozeml.lifecycle.thrashing import TOLERATED, WINDOW_S, Thrashing


class Holder(NamedTuple):
    number: int
    held: int


def test_least_queue_takes_the_emptiest_and_of_equals_the_oldest() -> None:
    choose = routing("least_queue")
    assert choose([Holder(1, 3), Holder(2, 1), Holder(3, 1)]) == 1


def test_round_robin_goes_around_even_when_replicas_come_and_go() -> None:
    choose = routing("round_robin")
    three = [Holder(1, 0), Holder(2, 0), Holder(3, 0)]
    assert [choose(three) for _ in range(4)] == [0, 1, 2, 0]
    assert choose([Holder(3, 0), Holder(4, 0)]) == 0
    assert choose([Holder(2, 0), Holder(4, 0)]) == 1


def test_random_reaches_every_replica() -> None:
    choose = routing("random")
    assert {choose([Holder(1, 0), Holder(2, 9)]) for _ in range(200)} == {0, 1}


def test_quarantine_knows_a_body_by_its_content_and_forgets_it_in_time() -> None:
    now = [0.0]
    quarantine = Quarantine(lambda: now[0])
    quarantine.add([b"ki", b"ller"])
    assert quarantine.holds([b"killer"])
    assert not quarantine.holds([b"innocent"])
    now[0] = 1e6
    assert not quarantine.holds([b"killer"])


def test_a_flood_of_killers_does_not_fill_the_memory() -> None:
    quarantine = Quarantine()
    for number in range(3000):
        quarantine.add([str(number).encode()])
    assert len(quarantine._until) <= 1000
    assert quarantine.holds([b"2999"])


def test_thrashing_is_many_reloads_in_a_short_time() -> None:
    thrashing = Thrashing()
    assert not any(thrashing.reloaded(second) for second in range(TOLERATED))
    assert thrashing.reloaded(TOLERATED)
    calm = Thrashing()
    assert not any(calm.reloaded(n * WINDOW_S / TOLERATED * 1.1) for n in range(50))


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        (1000, 1000),
        ("1000", 1000),
        ("1.5GiB", 3 * 2**29),
        ("512MiB", 2**29),
        ("2 GB", 2 * 10**9),
        ("7B", 7),
        ("80%", 800),
        ("12.5 %", 125),
    ],
)
def test_a_memory_limit_is_bytes_a_unit_or_a_share(limit: int | str, size: int) -> None:
    assert parse_limit(limit, total=1000) == size


def test_the_machine_has_more_than_is_left_of_it() -> None:
    available = available_bytes()
    assert available is None or 0 < available <= total_bytes()
