from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from snoozeml.lifecycle.queue import DEFAULT_LEVEL, Queue


class Guest:
    def __init__(self, level: int, number: int = 0) -> None:
        self.level = level
        self.number = number


def queue_of(*levels: int) -> Queue[Guest]:
    queue = Queue[Guest]()
    for number, level in enumerate(levels):
        queue.join(Guest(level, number))
    return queue


def numbers(queue: Queue[Guest]) -> list[int]:
    return [guest.number for guest in queue]


def test_guests_of_one_level_go_in_the_order_of_their_arrival() -> None:
    assert numbers(queue_of(*[DEFAULT_LEVEL] * 4)) == [0, 1, 2, 3]


def test_lower_levels_go_first() -> None:
    assert numbers(queue_of(5, 2, 9, 2, 1, 5, 10**18)) == [4, 1, 3, 0, 5, 2, 6]


def test_who_comes_back_goes_before_all_whatever_the_level() -> None:
    queue = queue_of(5, 9)
    last = queue.pop()
    queue.rejoin(last)
    queue.join(Guest(1, number=7))
    assert numbers(queue) == [1, 7, 0]


def test_who_comes_later_does_not_overtake_those_whose_order_is_kept() -> None:
    queue = queue_of(9, 2)
    queue.keep_order()
    queue.join(Guest(1, number=7))
    assert numbers(queue) == [1, 0, 7]


_LEVEL = st.integers(1, 4)
_STEPS = st.lists(st.tuples(st.sampled_from(["join"] * 4 + ["take", "rejoin", "keep"]), _LEVEL))


@given(_STEPS)
def test_the_order_is_that_of_sorting(steps: list[tuple[str, int]]) -> None:
    """Sorting is stable, so it keeps the order of arrival among equals."""
    queue, wanted, taken = Queue[Guest](), list[Guest](), list[Guest]()
    for number, (step, level) in enumerate(steps):
        if step == "join":
            guest = Guest(level, number)
            queue.join(guest)
            wanted = sorted([*wanted, guest], key=lambda guest: guest.level)
        elif step == "take" and queue:
            taken.append(queue.popleft())
            assert taken[-1] is wanted.pop(0)
        elif step == "rejoin" and taken:
            queue.rejoin(taken[-1])
            wanted.insert(0, taken.pop())
        elif step == "keep":
            queue.keep_order()
        assert list(queue) == wanted
        assert all(before.level <= after.level for before, after in pairwise(queue))
