"""Workers that die, hang and fail to load, at random, by the hand of the tests."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGSEGV, SIGSTOP, Signals
from typing import Final

from e2e import processes
from e2e.client import AsyncConnection
from e2e.daemon import Daemon

_PAUSES_S: Final = (0.05, 0.25)
_LURKS: Final = 0.8  # share of strikes that wait for a worker to have something to do
_LURK_S: Final = 0.5
_LONGEST_AIM_S: Final = 0.004  # runs take a few milliseconds: the blow falls in the midst of one
_LOOK_EVERY_S: Final = 0.001  # a worker loads in 10 ms


class Killer:
    """Kills and stops workers that serve.

    It is random, but fair: a request that is present at two deaths which may be its fault is
    refused, as it should be, so no model's worker dies of such a cause again before everything
    that may be blamed for the last one has been answered. SIGKILL is nobody's fault.

    Args:
        known_by: the file that a model's workers map, by model.
        in_flight: numbers of the requests that wait for an answer, by model.

    Attributes:
        strikes: how often each signal was sent.
        on_busy: how many of them hit while requests were on their way to the worker or back.
    """

    def __init__(
        self,
        daemon: Daemon,
        known_by: Mapping[str, str],
        in_flight: Mapping[str, set[int]],
        rng: Random,
    ) -> None:
        self.strikes: Final[Counter[str]] = Counter()
        self.on_busy = 0
        self._daemon = daemon
        self._model_of_file = {file: model_id for model_id, file in known_by.items()}
        self._model_of_pid: dict[int, str] = {}
        self._in_flight = in_flight
        self._rng = rng
        self._stopped: list[int] = []
        self._suspicions: dict[str, _Suspicion] = {}

    async def run(self, until: float) -> None:
        """Strike again and again; at the end let those go on that hang."""
        connection = await self._daemon.connect_async()
        while time.monotonic() < until:
            await asyncio.sleep(self._rng.uniform(*_PAUSES_S))
            await self._strike(connection)
        connection.close()
        for pid in self._hanging():
            with suppress(ProcessLookupError):
                os.kill(pid, SIGCONT)

    async def _strike(self, connection: AsyncConnection) -> None:
        serving = await self._serving(connection)
        if not serving:
            return
        pid = await self._choose(serving)
        model_id = serving[pid]
        signal = self._rng.choice([SIGKILL, SIGSEGV, SIGSTOP])
        if signal != SIGKILL and not self._may_blame(model_id):
            signal = SIGKILL
        # A hang keeps a place of the few: one at a time, and none that nobody would notice.
        if signal == SIGSTOP and (self._hanging() or not self._in_flight[model_id]):
            signal = SIGSEGV
        with suppress(ProcessLookupError):
            os.kill(pid, signal)
            self._note(pid, model_id, signal)

    async def _choose(self, serving: Mapping[int, str]) -> int:
        """A worker, most often one that is about to have its hands full."""
        lurk_until = time.monotonic() + (_LURK_S if self._rng.random() < _LURKS else 0.0)
        while time.monotonic() < lurk_until:
            busy = [pid for pid, model_id in serving.items() if self._in_flight[model_id]]
            if busy:
                await asyncio.sleep(self._rng.uniform(0, _LONGEST_AIM_S))
                return self._rng.choice(busy)
            await asyncio.sleep(_LOOK_EVERY_S)
        return self._rng.choice(sorted(serving))

    def _note(self, pid: int, model_id: str, signal: Signals) -> None:
        self.strikes[signal.name] += 1
        self.on_busy += bool(self._in_flight[model_id])
        if signal != SIGKILL:
            self._suspicions[model_id] = _Suspicion(pid, self._in_flight[model_id])
        if signal == SIGSTOP:
            self._stopped.append(pid)

    async def _serving(self, connection: AsyncConnection) -> dict[int, str]:
        """Model by worker, for workers that have loaded theirs.

        A worker that was there before a model reports as many replicas as it has workers is one of
        those replicas.
        """
        workers = self._workers()
        count = Counter(workers.values())
        reply = await connection.request("GET", "/v1/models")
        ready = {
            model["id"]
            for model in reply.json()
            if model["state"] in ("ready", "busy") and model["replicas"] == count[model["id"]]
        }
        hanging = self._hanging()
        return {pid: m for pid, m in workers.items() if m in ready and pid not in hanging}

    def _workers(self) -> dict[int, str]:
        for pid in self._daemon.workers():
            if pid not in self._model_of_pid:
                with suppress(FileNotFoundError, ProcessLookupError):
                    for file in processes.mapped_files(pid) & self._model_of_file.keys():
                        self._model_of_pid[pid] = self._model_of_file[file]
        return {pid: m for pid, m in self._model_of_pid.items() if processes.alive(pid)}

    def _hanging(self) -> list[int]:
        return [pid for pid in self._stopped if processes.alive(pid)]

    def _may_blame(self, model_id: str) -> bool:
        suspicion = self._suspicions.get(model_id)
        return suspicion is None or suspicion.is_over()


class _Suspicion:
    """A death, and the requests that may be blamed for it.

    Args:
        in_flight: the live set of the model's requests that wait for an answer.
    """

    def __init__(self, pid: int, in_flight: set[int]) -> None:
        self._pid = pid
        self._in_flight = in_flight
        self._is_dead = False
        self._blamed: set[int] | None = None

    def is_over(self) -> bool:
        """Whether all that may have been blamed has been answered; ask now and then."""
        if not self._is_dead:
            self._is_dead = not processes.alive(self._pid)
            return False  # the daemon may not have noticed yet, and may still send work there
        if self._blamed is None:
            self._blamed = set(self._in_flight)
        return not self._blamed & self._in_flight


class Spoiler:
    """Kills one in so many workers as soon as they are forked, before they have loaded.

    Runs in a thread for the duration of the block. It uses SIGKILL, which nobody can be blamed for,
    because now and then it comes too late.

    Attributes:
        kills: how many it has killed.
    """

    def __init__(self, daemon: Daemon, share: float, rng: Random) -> None:
        self.kills = 0
        self._spare = daemon.spare()
        self._share = share
        self._rng = rng
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        children = Path(f"/proc/{self._spare}/task/{self._spare}/children")
        seen = set(children.read_text().split())
        while not self._over.wait(_LOOK_EVERY_S):
            now = set(children.read_text().split())
            for pid in now - seen:
                if self._rng.random() < self._share:
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), SIGKILL)
                        self.kills += 1
            seen = now

    def __enter__(self) -> "Spoiler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
