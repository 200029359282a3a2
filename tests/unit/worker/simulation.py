"""Clients, a daemon and a worker in virtual time, around a real batcher."""

import heapq
import random
from statistics import mean, median
from typing import NamedTuple

from snoozeml.wire.tensors import Inference
from snoozeml.worker.batcher import Batcher, Pending, Run
from snoozeml.worker.limits import Limits
from snoozeml.worker.pacing import Pace

MAX_ROWS = 16


class World(NamedTuple):
    """Closed-loop clients: each sends its next request when it has the answer to the last.

    Attributes:
        think_s: from an answer to the client's next request, on average.
        daemon_s: the daemon's work per request; it does one at a time.
        fixed_s: cost of a run.
        row_s: cost of each row in a run.
    """

    clients: int
    think_s: float
    daemon_s: float
    fixed_s: float
    row_s: float


class Outcome(NamedTuple):
    requests_per_s: float
    median_s: float
    worst_s: float
    mean_rows: float


def pending(id: int, arrived_at: float, key: str = "", rows: int = 1) -> Pending:
    return Pending(id, 1, arrived_at, float("inf"), Inference({}, ()), rows, key)


def simulate(
    world: World, pace: Pace, *, max_rows: int = MAX_ROWS, seconds: float = 1.0
) -> Outcome:
    """Run a worker for some virtual seconds, of which the first tenth is not counted."""
    rng = random.Random(0)
    batcher = Batcher(Limits(max_rows, tokens=1), pace)
    arrivals = [(rng.random() * world.think_s, client) for client in range(world.clients)]
    heapq.heapify(arrivals)
    now = daemon_free_at = 0.0
    latencies: list[float] = []
    sizes: list[int] = []
    while now < seconds:
        while arrivals and arrivals[0][0] <= now:
            at, client = heapq.heappop(arrivals)
            batcher.add(pending(client, at), backlog=0)
        todo = batcher.next(now)
        if not isinstance(todo, Run):
            until = todo.until if todo else float("inf")
            now = min(until, arrivals[0][0] if arrivals else float("inf"))
            continue
        started_at = now
        now += world.fixed_s + world.row_s * len(todo.batch)
        batcher.answered(todo, started_at, now)
        for request in todo.batch:
            daemon_free_at = max(daemon_free_at, now) + world.daemon_s
            think_s = world.think_s * rng.uniform(0.5, 1.5)
            heapq.heappush(arrivals, (daemon_free_at + think_s, request.id))
        if now > seconds / 10:
            latencies += [now - request.arrived_at for request in todo.batch]
            sizes.append(len(todo.batch))
    rate = len(latencies) / (seconds * 0.9)
    return Outcome(rate, median(latencies), max(latencies), mean(sizes))
