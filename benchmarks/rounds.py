"""Measuring servers in turns, and keeping the rounds in which nobody else used the machine."""

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import mean, median
from typing import Final, NamedTuple

from benchmarks import wrk
from benchmarks.figures import Figure
from e2e import processes

_WANTED: Final = 5
_MOST: Final = 20
_QUIET: Final = 0.02  # of one core's time in a round
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Round(NamedTuple):
    loads: dict[str, wrk.Load]
    others_s: float
    """CPU time that went to processes which are none of ours."""

    wall_s: float

    @property
    def others_share(self) -> float:
        return self.others_s / self.wall_s


class Rounds(NamedTuple):
    kept: list[Round]

    def of(self, name: str) -> list[wrk.Load]:
        return [one.loads[name] for one in self.kept]

    def requests_per_s(self, name: str) -> list[float]:
        return [load.requests_per_s for load in self.of(name)]

    def latency_us(self, name: str) -> list[float]:
        return [load.median_us for load in self.of(name)]

    def disturbance(self, what: str) -> Figure:
        """How far the rounds that were kept can be trusted."""
        share = mean(one.others_share for one in self.kept)
        return Figure(what=f"{what}, of a core used by others", value=share * 100, unit="%")


def in_turns(
    urls: Mapping[str, str],
    body: bytes | Mapping[str, bytes],
    connections: int,
    seconds: int,
    headers: Mapping[str, Mapping[str, str]] = {},
) -> Rounds:
    """Load several HTTP servers with wrk; see `take_turns`.

    Args:
        body: what all are sent, or each by name.
        headers: of those, by name, whose body is not JSON.
    """
    bodies = dict.fromkeys(urls, body) if isinstance(body, bytes) else body

    def load(name: str, seconds: int) -> wrk.Load:
        head = headers.get(name, wrk.JSON)
        return wrk.post(urls[name], bodies[name], connections, seconds, head)

    return take_turns(urls, load, seconds)


def take_turns(names: Iterable[str], load: Callable[[str, int], wrk.Load], seconds: int) -> Rounds:
    """Load several servers round by round, after a second of warming up each.

    Each has its turn in every round, in an order that is reversed from round to round. It goes on
    until there have been enough quiet rounds, or patience is at its end; the quietest are kept.
    A neighbour takes more from three busy processes than from two.

    Args:
        load: loads the server with this name for so many seconds.
    """
    order = list(names)
    for name in order:
        load(name, 1)
    rounds: list[Round] = []
    while sum(one.others_share < _QUIET for one in rounds) < _WANTED and len(rounds) < _MOST:
        started, before_s = time.monotonic(), _others_s()
        loads = {name: load(name, seconds) for name in order}
        others_s = max(0.0, _others_s() - before_s)  # below 0 by the rounding of the kernel's ticks
        rounds.append(Round(loads, others_s, time.monotonic() - started))
        order.reverse()
    return Rounds(sorted(rounds, key=lambda one: one.others_share)[:_WANTED])


def ratio(these: list[float], those: list[float]) -> float:
    """Median of the ratios within each round: what changes between rounds cancels out."""
    return median(one / other for one, other in zip(these, those, strict=True))


def _others_s() -> float:
    """CPU time that the machine has spent on others than us; only differences mean something."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    busy_s = (user + nice + system + irq + softirq + steal) / _TICKS_PER_S
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)  # wrk
    living_ns = sum(map(processes.cpu_ns, processes.tree(os.getpid())))
    return busy_s - ended.ru_utime - ended.ru_stime - living_ns / 1e9
