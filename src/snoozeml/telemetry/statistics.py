"""What is counted for each model."""

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

DURATION_BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""A small model answers within a millisecond; whoever waits for room may wait for half a minute."""

BATCH_BOUNDS_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

RESTART_REASONS: Final = ("crash", "hang", "killed", "oom")
"""Why a worker ends that was not asked to leave; docs/metrics.md says what each means."""


class Durations(msgspec.Struct):
    """How often something took how long, together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds


class Histogram(msgspec.Struct):
    """Durations, and how many of them fall between two of `DURATION_BOUNDS_S`.

    `prometheus_client.Histogram.observe` takes five times as long, most of it for its locks. Only
    the event loop's thread writes here.

    Attributes:
        counts: those up to each bound and above the one before; the last are longer than all.
    """

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DURATION_BOUNDS_S) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(DURATION_BOUNDS_S, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)


class ModelStatistics(msgspec.Struct):
    """Counts of one model since it was registered, whatever workers it has had meanwhile.

    Plain numbers, because they are written on the way of every request; they become statistics and
    Prometheus samples only when somebody asks. These are the only place where they are counted.

    Attributes:
        last_at: when a request was answered last, in seconds since 1970; 0: never.
        rows, runs: that the model was run on, and how often it was.
        succeeded, failed: requests, from arrival to answer.
        queued: answered requests, from arrival to the start of their run.
        running: answered requests, each with the time of its whole run.
        by_batch_size: runs by their number of rows.
        cold_starts: loads that found no worker, waiting for room left out.
        restarts: workers that ended without being asked to, by reason.
    """

    last_at: float = 0.0
    rows: int = 0
    runs: int = 0
    succeeded: Histogram = msgspec.field(default_factory=Histogram)
    failed: Durations = msgspec.field(default_factory=Durations)
    queued: Histogram = msgspec.field(default_factory=Histogram)
    running: Durations = msgspec.field(default_factory=Durations)
    by_batch_size: dict[int, Durations] = msgspec.field(default_factory=dict)
    cold_starts: Histogram = msgspec.field(default_factory=Histogram)
    restarts: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(RESTART_REASONS, 0)
    )

    def ran(self, runs: int, rows: int, run_s: float) -> None:
        """A worker has run batches; size and time are those of the last one."""
        self.runs += runs
        self.rows += rows
        self.by_batch_size.setdefault(rows, Durations()).add(run_s)

    def answered(self, took_s: float, queue_s: float, run_s: float) -> None:
        """A request has been answered."""
        self.last_at = time.time()
        self.succeeded.add(took_s)
        self.queued.add(queue_s)
        self.running.add(run_s)

    def batch_counts(self) -> Sequence[int]:
        """Runs by number of rows, as `Histogram.counts`, but between `BATCH_BOUNDS_ROWS`."""
        counts = [0] * (len(BATCH_BOUNDS_ROWS) + 1)
        for rows, runs in self.by_batch_size.items():
            counts[bisect_left(BATCH_BOUNDS_ROWS, rows)] += runs.count
        return counts
