"""What is counted for each model."""

import time

import msgspec


class Durations(msgspec.Struct):
    """How often something took how long, together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds


class ModelStatistics(msgspec.Struct):
    """Counts of one model since it was registered; plain numbers, as in `Totals`.

    Attributes:
        last_at: when a request was answered last, in seconds since 1970; 0: never.
        rows, runs: that the model was run on, and how often it was.
        succeeded, failed: requests, from arrival to answer.
        queued: answered requests, from arrival to the start of their run.
        running: answered requests, each with the time of its whole run.
        by_batch_size: runs by their number of rows.
    """

    last_at: float = 0.0
    rows: int = 0
    runs: int = 0
    succeeded: Durations = msgspec.field(default_factory=Durations)
    failed: Durations = msgspec.field(default_factory=Durations)
    queued: Durations = msgspec.field(default_factory=Durations)
    running: Durations = msgspec.field(default_factory=Durations)
    by_batch_size: dict[int, Durations] = msgspec.field(default_factory=dict)

    def ran(self, runs: int, rows: int, run_s: float) -> None:
        """A worker has run batches; size and time are those of the last one, if it had answers."""
        self.runs += runs
        if rows:
            self.rows += rows
            self.by_batch_size.setdefault(rows, Durations()).add(run_s)

    def answered(self, took_s: float, queue_s: float, run_s: float) -> None:
        """A request has been answered."""
        self.last_at = time.time()
        self.succeeded.add(took_s)
        self.queued.add(queue_s)
        self.running.add(run_s)
