"""Launching workers from the spare: the daemon's side of `worker.spare`."""

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from snoozeml.lifecycle.process import (
    ExecLauncher,
    Launcher,
    OutputTail,
    Process,
    exec_python,
    kill_group,
)

_log = logging.getLogger("snoozeml.spare")

_MESSAGE_BYTES = 4096
_START_TIMEOUT_S = 30.0  # importing numpy and ONNX Runtime takes 0.2 s; a busy edge box far longer
_REPORT_TIMEOUT_S = 1.0  # from a worker's end to the spare's word on how it ended

# It takes 2 ms; 0.1 s beside forty busy processes on two cores, and 1.1 s where those go first. A
# spare that was only slow costs more to replace, so this leaves time to read back swapped pages.
_FORK_TIMEOUT_S = 2.0

# Beyond, the spare may hang: a fresh worker, which imports the same, is begun beside it.
_PATIENCE_S = 10.0

_REST_S = 60.0
"""One that has not forked anything gets no successor for so long: that would fare no better."""


class SpareLost(Exception):
    """The spare ended, hangs or refused; another way to start a worker is needed."""


class SpareProcess:
    """A worker that the spare forked: not our child, so its end is reported to us."""

    def __init__(self, pid: int, sock: socket.socket, output: OutputTail) -> None:
        self.pid = pid
        self.sock = sock
        self.output = output
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int | None] = self._loop.create_future()
        self._watch()

    async def wait(self) -> int | None:
        return await asyncio.shield(self._exited)

    def has_exited(self, status: int | None) -> None:
        if not self._exited.done():
            self._exited.set_result(status)

    def _watch(self) -> None:
        """Notice the end without the spare's word, in case it is gone, or hangs."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:  # it has ended, and been reaped
            self._loop.call_later(_REPORT_TIMEOUT_S, self.has_exited, None)
            return

        def ended() -> None:
            self._loop.remove_reader(fd)
            os.close(fd)
            self._loop.call_later(_REPORT_TIMEOUT_S, self.has_exited, None)

        self._loop.add_reader(fd, ended)


class _Fork(NamedTuple):
    """A fork that has been asked for."""

    forked: asyncio.Future[SpareProcess]
    sock: socket.socket
    output: OutputTail


class Spare:
    """One spare process.

    Args:
        on_empty: called when the last of its workers has been reaped.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        control: socket.socket,
        on_empty: Callable[[], None],
    ) -> None:
        self._process = process
        self._control = control
        self._on_empty = on_empty
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._forks: dict[int, _Fork] = {}
        self._next_token = 1
        self._workers: dict[int, SpareProcess] = {}
        self.lost = False
        self._loop.add_reader(control, self._read)

    @classmethod
    async def start(cls, on_empty: Callable[[], None]) -> "Spare":
        """Start a spare and wait until it can fork.

        Raises:
            SpareLost: it did not come up; the log says why.
        """
        process, control, _ = await exec_python(
            "snoozeml.worker.spare", name="spare", kind=socket.SOCK_SEQPACKET
        )
        spare = cls(process, control, on_empty)
        late = f"it was not ready within {_START_TIMEOUT_S:g} s"
        timer = spare._loop.call_later(_START_TIMEOUT_S, spare._lose, late)
        try:
            await spare._ready
        except BaseException:
            await spare.close()
            raise
        finally:
            timer.cancel()
        _log.info("spare started", extra={"fields": {"pid": process.pid}})
        return spare

    @property
    def empty(self) -> bool:
        """No worker of this spare runs, and none has been asked for."""
        return not self._workers and not self._forks

    async def fork(self, name: str) -> SpareProcess:
        """Fork a worker.

        Raises:
            SpareLost: the spare ended, hangs, or says that it cannot fork.
        """
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            output, write_fd = await OutputTail.attach(name)
            try:
                forked = self._ask(ours, output, [theirs.fileno(), write_fd])
            finally:
                os.close(write_fd)
            return await forked
        except BaseException:
            ours.close()  # a worker that was forked all the same leaves at end-of-file
            raise
        finally:
            theirs.close()

    def _ask(
        self, sock: socket.socket, output: OutputTail, fds: list[int]
    ) -> asyncio.Future[SpareProcess]:
        if self.lost:
            raise SpareLost("it has ended")
        token = self._next_token
        self._next_token += 1
        try:
            socket.send_fds(self._control, [msgspec.json.encode({"fork": token})], fds)
        except OSError as error:
            raise SpareLost(f"it cannot be reached: {error.strerror}") from error
        fork = self._forks[token] = _Fork(self._loop.create_future(), sock, output)
        # Not the business of who asks: he may have less time than it takes to tell a hang.
        self._loop.call_later(_FORK_TIMEOUT_S, self._check_forked, token)
        return fork.forked

    def _check_forked(self, token: int) -> None:
        self._read()  # it may be our own loop that is late
        if token in self._forks:
            self._lose(f"it did not fork within {_FORK_TIMEOUT_S:g} s")

    async def close(self) -> None:
        """Dismiss the spare: it has nothing to put in order, so it is not asked but killed."""
        self._end("it was dismissed")
        await self._process.wait()

    def _read(self) -> None:
        while not self.lost:
            try:
                data = self._control.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose("it has ended")
                return
            self._obey(msgspec.json.decode(data))

    def _obey(self, message: dict[str, Any]) -> None:
        match message:
            case {"ready": _}:
                self._ready.set_result(None)
            case {"forked": token, "pid": pid}:
                fork = self._forks.pop(token)
                worker = self._workers[pid] = SpareProcess(pid, fork.sock, fork.output)
                if not fork.forked.done():  # else whoever asked was cancelled
                    fork.forked.set_result(worker)
            case {"refused": token, "why": why}:
                _log.warning("the spare refused to fork: %s", why)
                _refuse(self._forks.pop(token).forked, why)
            case {"exited": pid, "status": status}:
                self._workers.pop(pid).has_exited(status)
                if self.empty:
                    self._on_empty()

    def _lose(self, why: str) -> None:
        if not self.lost:
            _log.error("spare lost", extra={"fields": {"pid": self._process.pid, "why": why}})
            self._end(why)

    def _end(self, why: str) -> None:
        """End it, whatever it still does, and tell all who wait for it."""
        if self.lost:
            return
        self.lost = True
        self._loop.remove_reader(self._control)
        self._control.close()
        kill_group(self._process.pid)
        _refuse(self._ready, why)
        for fork in self._forks.values():
            _refuse(fork.forked, why)
        self._forks.clear()


def _refuse(waiting: asyncio.Future[Any], why: str) -> None:
    if not waiting.done():
        waiting.set_exception(SpareLost(why))
        waiting.exception()  # nobody may be waiting any more: no "never retrieved" in the log


class SpareLauncher:
    """Forks workers from a spare that comes on demand and goes when nothing has run for a while.

    What the spare does not do is done by executing a fresh worker.

    Args:
        linger_s: how long the spare stays after the last of its workers has left.
    """

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s
        self._spare: Spare | None = None
        self._starting: asyncio.Task[None] | None = None
        self._unproven_since = -math.inf  # when a spare was begun that has not forked yet
        self._timer: asyncio.TimerHandle | None = None
        self._dismissal: asyncio.Task[None] | None = None
        self._fallback: Launcher = ExecLauncher()

    async def warm_up(self) -> None:
        with suppress(SpareLost):
            await self._ready_spare()

    async def launch(self, name: str) -> Process:
        try:
            spare = await self._ready_spare()
            process = await spare.fork(name)
        except SpareLost as error:
            fields = {"worker": name, "why": f"no spare: {error}"}
            _log.info("executing a fresh worker", extra={"fields": fields})
            return await self._fallback.launch(name)
        self._unproven_since = -math.inf
        return process

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._dismissal is not None:
            await self._dismissal
        if self._spare is not None:
            await self._spare.close()

    async def _ready_spare(self) -> Spare:
        """The spare, started if there is none.

        Raises:
            SpareLost: there is none, and it would take too long to wait for one.
        """
        if self._spare is None or self._spare.lost:
            await self._await_start()
        if self._spare is None or self._spare.lost:
            raise SpareLost("it is not ready")
        return self._spare

    async def _await_start(self) -> None:
        now = time.monotonic()
        if self._starting is None and now > self._unproven_since + _REST_S:
            self._unproven_since = now
            self._starting = asyncio.create_task(self._start())
        if self._starting is not None:
            patience_s = self._unproven_since + _PATIENCE_S - now
            await asyncio.wait([self._starting], timeout=max(0.0, patience_s))

    async def _start(self) -> None:
        """In a task of its own: who waits for the spare may leave, and others want it, too."""
        try:
            with suppress(SpareLost):
                self._spare = await Spare.start(self._begin_linger)
                self._begin_linger()
        except OSError as error:
            _log.error("spare lost", extra={"fields": {"why": str(error)}})
        finally:
            self._starting = None

    def _begin_linger(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._end_linger)

    def _end_linger(self) -> None:
        # The timer only advises: a worker may have come since, and its end sets the timer again.
        if self._spare is not None and not self._spare.lost and self._spare.empty:
            spare, self._spare = self._spare, None
            self._unproven_since = -math.inf
            _log.info("spare dismissed", extra={"fields": {"after_s": self._linger_s}})
            self._dismissal = asyncio.create_task(spare.close())
