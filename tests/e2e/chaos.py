"""Chaos: mixed traffic on many models with little room, while their workers die and hang.

`python -m e2e.chaos --minutes 10` goes on for long and exits 1 if anything was not as it must be;
the tests do the same briefly.
"""

import argparse
import asyncio
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from e2e import processes
from e2e.client import AsyncConnection, Reply
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.killer import Killer, Spoiler
from e2e.zoo import Question, Subject, build_zoo

CLIENTS: Final = 32
PLACES: Final = 4
SETTINGS: Final = f"""
[defaults]
max_loaded_models = {PLACES}
min_residency_secs = 0.2
max_replicas = 2
autoscale_queue_threshold = 4
exec_timeout_secs = 2
request_timeout_secs = 60
"""

_SPOILT_LOADS: Final = 0.1
_LEAVES: Final = 0.02  # share of requests whose client goes away before the answer
_LEAVES_AFTER_S: Final = 0.05
_UNLOAD_EVERY_S: Final = 0.5
_PATIENCE_S: Final = 75.0  # beyond the deadline: a request that takes longer hangs
_MIB: Final = 2**20
_LEDGER_SLACK_BYTES: Final = _MIB
_GROWTH_BYTES: Final = 8 * _MIB


class Refusal(NamedTuple):
    model_id: str
    status: int
    code: str
    message: str
    retry_after: str

    @property
    def is_of_a_failed_load(self) -> bool:
        """Whether it says that the model's load was cut short, and when to come back."""
        return (
            (self.status, self.code) == (503, "model_failed")
            and "while it loaded the model" in self.message
            and re.fullmatch(r"[1-9]\d*", self.retry_after) is not None
        )


@dataclass
class Outcomes:
    """What became of the requests, and what was done to the workers.

    Attributes:
        answered: right answers, by model.
        lost: requests that got no answer at all.
        strikes: how often each signal hit a worker that served.
        on_busy: how many of them hit while its model had requests in flight.
        spoilt: how many workers were killed while they loaded.
    """

    answered: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    strikes: Counter[str] = field(default_factory=Counter)
    on_busy: int = 0
    spoilt: int = 0

    def failures(self) -> list[str]:
        """Everything that must not have happened."""
        refused = self.refused
        if self.spoilt:
            refused = [refusal for refusal in refused if not refusal.is_of_a_failed_load]
        return [*self.wrong, *self.lost, *map(str, refused)]


class Traffic:
    """Clients that each have one question at a time.

    Attributes:
        in_flight: numbers of the requests that wait for an answer, by model.
    """

    def __init__(self, daemon: Daemon, zoo: Sequence[Subject], outcomes: Outcomes) -> None:
        self.in_flight: Final[dict[str, set[int]]] = {s.model_id: set() for s in zoo}
        self._daemon = daemon
        self._zoo = zoo
        self._outcomes = outcomes
        self._popularity = [1 / rank for rank in range(1, len(zoo) + 1)]
        self._numbers = itertools.count()

    async def client(self, rng: Random, until: float) -> None:
        connection = await self._daemon.connect_async()
        while time.monotonic() < until:
            (subject,) = rng.choices(self._zoo, self._popularity)
            question = rng.choice(subject.questions)
            if rng.random() < _LEAVES:
                stays = False
                with suppress(TimeoutError):
                    async with asyncio.timeout(rng.uniform(0, _LEAVES_AFTER_S)):
                        await connection.request("POST", subject.target, question.body)
            else:
                stays = await self._ask(connection, subject, question)
            if not stays:
                connection.close()
                connection = await self._daemon.connect_async()
        connection.close()

    async def _ask(self, connection: AsyncConnection, subject: Subject, question: Question) -> bool:
        """Ask and note what comes; False when the connection is of no more use."""
        number, in_flight = next(self._numbers), self.in_flight[subject.model_id]
        in_flight.add(number)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reply = await connection.request("POST", subject.target, question.body)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self._outcomes.lost.append(f"{subject.model_id}: {error!r}")
            return False
        finally:
            in_flight.remove(number)
        self._note(subject, question, reply)
        return True

    def _note(self, subject: Subject, question: Question, reply: Reply) -> None:
        if reply.status != 200:
            error, later = reply.json(), reply.headers.get("retry-after", "")
            self._outcomes.refused.append(
                Refusal(subject.model_id, reply.status, error["code"], error["error"], later)
            )
        elif question.is_answered_by(reply):
            self._outcomes.answered[subject.model_id] += 1
        else:
            self._outcomes.wrong.append(f"{subject.model_id}: {reply}")


class Chaos:
    """A daemon over the zoo, with all models prepared and asleep.

    Attributes:
        baseline_bytes: the daemon's resident memory before.
    """

    def __init__(self, daemon: Daemon, zoo: Sequence[Subject]) -> None:
        self._daemon = daemon
        self._zoo = zoo
        self._known_by = {subject.model_id: self._file_of(subject) for subject in zoo}
        self._unload_all()
        self.baseline_bytes = processes.resident_bytes(daemon.pid)

    def _file_of(self, subject: Subject) -> str:
        """Load a model, and see by which file its worker can be told from others."""
        self._daemon.control(subject.model_id, "load")
        (worker,) = self._daemon.workers()
        (weights,) = (f for f in processes.mapped_files(worker) if f.endswith("/weights"))
        self._daemon.control(subject.model_id, "unload")
        return weights

    def unleash(self, seconds: float, *, seed: int, spoil_loads: bool) -> Outcomes:
        """Let it happen for a while; what is on its way then is waited for."""
        outcomes = Outcomes()
        share = _SPOILT_LOADS if spoil_loads else 0.0
        spoiler = Spoiler(self._daemon, share, Random(seed))
        with spoiler if spoil_loads else nullcontext():
            asyncio.run(self._unleash(seconds, seed, outcomes))
        outcomes.spoilt = spoiler.kills
        return outcomes

    async def _unleash(self, seconds: float, seed: int, outcomes: Outcomes) -> None:
        traffic = Traffic(self._daemon, self._zoo, outcomes)
        killer = Killer(self._daemon, self._known_by, traffic.in_flight, Random(seed))
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for client in range(CLIENTS):
                group.create_task(traffic.client(Random(f"{seed}.{client}"), until))
            group.create_task(killer.run(until))
            group.create_task(self._unload_now_and_then(Random(seed), until))
        outcomes.strikes, outcomes.on_busy = killer.strikes, killer.on_busy

    async def _unload_now_and_then(self, rng: Random, until: float) -> None:
        connection = await self._daemon.connect_async()
        while time.monotonic() < until:
            await asyncio.sleep(_UNLOAD_EVERY_S)
            target = f"/v1/models/{rng.choice(self._zoo).model_id}/unload"
            reply = await connection.request("POST", target)
            assert reply.status == 200, reply
        connection.close()

    def residue(self) -> list[str]:
        """What is not as it was before, or not as the daemon says, once nothing is in flight."""
        return [*self._ledger(), *self._left_over()]

    def _ledger(self) -> list[str]:
        self._unload_all()  # which also ends the backoff of loads that failed
        for subject in self._zoo[:PLACES]:  # something of each size to be counted
            reply = self._daemon.request("POST", subject.target, subject.questions[0].body)
            assert reply.status == 200, reply
        listed = self._daemon.request("GET", "/v1/models").json()
        told = sum(model["memory_bytes"] for model in listed)
        found = sum(map(processes.proportional_bytes, self._daemon.workers()))
        waiting = [model["id"] for model in listed if model["queue_depth"]]
        wrong = abs(told - found) > _LEDGER_SLACK_BYTES
        books = [f"memory_bytes sum up to {told}, the kernel says {found}"] if wrong else []
        return [*books, *(f"requests wait for {model_id}" for model_id in waiting)]

    def _left_over(self) -> list[str]:
        self._unload_all()
        grown = processes.resident_bytes(self._daemon.pid) - self.baseline_bytes
        too_much = [f"the daemon has grown by {grown} bytes"] if grown > _GROWTH_BYTES else []
        zombies = [pid for pid in map(int, _children(self._daemon.spare())) if pid]
        return [*too_much, *(f"process {pid} has not been reaped" for pid in zombies)]

    def _unload_all(self) -> None:
        for subject in self._zoo:
            self._daemon.control(subject.model_id, "unload")
        eventually(lambda: not self._daemon.workers(), "all workers are gone")


def _children(pid: int) -> list[str]:
    """Children of a single-threaded process, those that wait to be reaped included."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long; default 10")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    options = parser.parse_args()
    bad = []
    with tempfile.TemporaryDirectory() as models, tempfile.TemporaryDirectory() as cache:
        zoo = build_zoo(Path(models))
        Path(models, "models.toml").write_text(SETTINGS)
        with Daemon(Path(models), Path(cache)) as daemon:
            chaos = Chaos(daemon, zoo)
            for spoil_loads in (False, True):
                print(f"seed {options.seed}, loads fail: {spoil_loads}", flush=True)
                outcomes = chaos.unleash(
                    options.minutes * 30, seed=options.seed, spoil_loads=spoil_loads
                )
                bad += [*outcomes.failures(), *chaos.residue()]
                print(
                    f"{outcomes.answered.total()} answers, {len(outcomes.refused)} refusals, "
                    f"{dict(outcomes.strikes)}, {outcomes.on_busy} of them on busy workers, "
                    f"{outcomes.spoilt} loads spoilt, {len(bad)} bad"
                )
            code = daemon.stop()
            bad += [f"the daemon ended with {code}"] if code else []
    for what in bad[:100]:
        print(what, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
