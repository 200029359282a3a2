"""How long a request waits for company. Pure: no clock is read, `now` is passed in."""

from collections import deque
from typing import Final, Protocol

import msgspec


class Pace(Protocol):
    """Decides when a batch that is not full yet starts."""

    def arrived(self, at: float, backlog: int) -> None:
        """A request came in, at monotonic second `at`; `backlog` more wait in the daemon."""

    def answered(self, requests: int, rows: int, started_at: float, now: float) -> None:
        """A run of `rows` rows, begun at `started_at`, has answered that many requests just now."""

    def run_at(self, group: "Group", now: float) -> float:
        """When a group that does not fill a batch is to run; up to `now` means at once."""


class Group(msgspec.Struct, gc=False):
    """Requests in hand that may share a batch.

    Attributes:
        room: rows that would still fit into the batch.
        oldest_at: arrival of the oldest, in monotonic seconds.
        is_all: nothing else is in hand.
    """

    requests: int
    rows: int
    room: int
    oldest_at: float
    is_all: bool


class FixedPace:
    """Waits until the batch is full or its oldest request has waited `delay_s`."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s: Final = delay_s

    def arrived(self, at: float, backlog: int) -> None:
        pass  # nothing that happens changes this pace

    def answered(self, requests: int, rows: int, started_at: float, now: float) -> None:
        pass

    def run_at(self, group: Group, now: float) -> float:
        return group.oldest_at + self._delay_s


class AdaptivePace:
    """Waits only while more requests are known to be on their way, and only where that pays.

    Most clients wait for an answer before they send their next request. So whoever has been
    answered and not been seen since is expected; and a client that is alone is never waited for,
    because when its request is here, nobody is missing.

    A run has a fixed cost, which requests that share it save. Two kinds of waiting pay:

    - Everybody who is missing will be here before the fixed cost of a run has passed. Then one run
      together ends sooner than two in turn.
    - Requests come faster than runs of their own could follow, yet slower than rows are computed.
      Then the worker has time to spare, and fuller batches leave more of the processor to others.
      This needs a crowd that, with a full batch in hand, leaves another one outside; a smaller one
      would only wait for the worker while the worker waits for it.

    A wait ends once it has cost as much as it could have saved.

    Args:
        max_delay_s: no request waits longer than this after its arrival.
    """

    def __init__(self, max_delay_s: float) -> None:
        self._max_delay_s: Final = max_delay_s
        self._costs: Final = RunCosts()
        self._returns: Final = Returns(max_delay_s)
        self._backlog = 0
        self._gap_s = max_delay_s  # usual time from an arrival, or an answer, to the next arrival
        self._last_arrival = self._last_answer = self._answer_before = float("-inf")
        self._patience_ends: float | None = None

    def arrived(self, at: float, backlog: int) -> None:
        # Whoever arrived during a run is seen after its answers, but came after those before it.
        before = self._last_answer if self._last_answer <= at else self._answer_before
        if self._last_arrival > before:
            before = self._last_arrival
        if at > before:
            gap_s = at - before
            self._last_arrival = at
        else:
            gap_s = 0.0
        self._gap_s += _NEWEST * (min(gap_s, self._max_delay_s) - self._gap_s)
        self._returns.arrived(at)
        self._backlog = backlog
        self._patience_ends = None

    def answered(self, requests: int, rows: int, started_at: float, now: float) -> None:
        self._costs.learn(rows, now - started_at)
        self._returns.answered(requests, now)
        self._answer_before, self._last_answer = self._last_answer, now
        self._patience_ends = None

    def run_at(self, group: Group, now: float) -> float:
        if not group.is_all:
            return now  # while this runs, the others find company
        if self._patience_ends is None:
            self._patience_ends = now + self._patience_s(group, now)
        return min(self._patience_ends, group.oldest_at + self._max_delay_s)

    def _patience_s(self, group: Group, now: float) -> float:
        """The longest wait for more requests that can pay; 0 where none does."""
        expected = max(self._returns.expected(now), self._backlog)
        room = group.room * group.requests // group.rows  # in requests like these
        missing = min(expected, room)
        if not missing:
            return 0.0
        fixed_s, row_s = self._costs.fit()
        if missing * self._gap_s < fixed_s:
            return fixed_s
        left_outside, full_batch = expected - missing, group.requests + room
        if left_outside >= full_batch and row_s < self._gap_s < fixed_s + row_s:
            return missing * fixed_s
        return 0.0


_NEWEST: Final = 1 / 8  # weight of the newest gap; a batch or two change the estimate
_KEPT: Final = 0.95  # weight that older runs keep at each new one: about the last twenty count


class Returns:
    """Counts who has been answered and not been seen since, and may still come back.

    Args:
        within_s: whoever has not come back after this time is not coming.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s: Final = within_s
        self._answers: Final[deque[list[float]]] = deque()  # [when, how many]; oldest first
        self._away = 0.0  # sum of how many

    def answered(self, requests: int, now: float) -> None:
        self._answers.append([now, requests])
        self._away += requests

    def arrived(self, at: float) -> None:
        """Somebody came: whoever has been away longest, or a stranger if nobody is away."""
        self._forget(at)
        answers = self._answers
        if answers and answers[0][0] <= at:
            self._away -= 1
            answers[0][1] -= 1
            if not answers[0][1]:
                answers.popleft()

    def expected(self, now: float) -> int:
        self._forget(now)
        return int(self._away)

    def _forget(self, now: float) -> None:
        answers = self._answers
        while answers and answers[0][0] < now - self._within_s:
            self._away -= answers.popleft()[1]


class RunCosts:
    """What a run costs: a line of seconds over rows, fitted to the latest runs."""

    def __init__(self) -> None:
        self._weight = self._rows = self._seconds = self._rows_squared = self._rows_seconds = 0.0

    def learn(self, rows: int, run_s: float) -> None:
        self._weight = self._weight * _KEPT + 1
        self._rows = self._rows * _KEPT + rows
        self._seconds = self._seconds * _KEPT + run_s
        self._rows_squared = self._rows_squared * _KEPT + rows * rows
        self._rows_seconds = self._rows_seconds * _KEPT + rows * run_s

    def fit(self) -> tuple[float, float]:
        """Seconds that a run takes however few rows it has, and seconds for each row.

        While all runs have had the same number of rows the whole cost counts as fixed. That is too
        hopeful at worst until the next run of another size, which it brings about.
        """
        if not self._weight:
            return 0.0, 0.0
        mean_rows, mean_s = self._rows / self._weight, self._seconds / self._weight
        variance = self._rows_squared / self._weight - mean_rows * mean_rows
        if variance < _SAME_SIZE:
            return mean_s, 0.0
        covariance = self._rows_seconds / self._weight - mean_rows * mean_s
        row_s = min(max(covariance / variance, 0.0), mean_s / mean_rows)
        return mean_s - row_s * mean_rows, row_s


_SAME_SIZE: Final = 1e-6  # rows²; rounding makes the variance of equal numbers not quite zero
