"""Launching workers from the spare: the daemon's side of `worker.spare`."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
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
_CLOSE_TIMEOUT_S = 5.0
_FORK_TIMEOUT_S = 5.0  # it takes a millisecond
_REPORT_TIMEOUT_S = 1.0  # from a worker's end to the spare's word on how it ended


class SpareLost(Exception):
    """The spare ended or refused; another way to start a worker is needed."""


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
            SpareLost: it did not come up.
        """
        process, control, _ = await exec_python(
            "snoozeml.worker.spare", name="spare", kind=socket.SOCK_SEQPACKET
        )
        spare = cls(process, control, on_empty)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await spare._ready
        except BaseException as error:
            await spare.close()
            if isinstance(error, TimeoutError):
                raise SpareLost(f"it was not ready within {_START_TIMEOUT_S:g} s") from error
            raise
        _log.info("spare started", extra={"fields": {"pid": process.pid}})
        return spare

    @property
    def empty(self) -> bool:
        """No worker of this spare runs, and none has been asked for."""
        return not self._workers and not self._forks

    async def fork(self, name: str) -> SpareProcess:
        """Fork a worker.

        Raises:
            SpareLost: the spare ended, or says that it cannot fork.
        """
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            output, write_fd = await OutputTail.attach(name)
            try:
                fork = self._ask(ours, output, [theirs.fileno(), write_fd])
            finally:
                os.close(write_fd)
            async with asyncio.timeout(_FORK_TIMEOUT_S):
                return await fork.forked
        except TimeoutError:
            ours.close()
            kill_group(self._process.pid)  # it hangs: whatever it still does is not wanted
            self._lose(f"it did not fork within {_FORK_TIMEOUT_S:g} s")
            raise SpareLost(f"it did not fork within {_FORK_TIMEOUT_S:g} s") from None
        except BaseException:
            ours.close()  # a worker that was forked all the same leaves at end-of-file
            raise
        finally:
            theirs.close()

    def _ask(self, sock: socket.socket, output: OutputTail, fds: list[int]) -> _Fork:
        if self.lost:
            raise SpareLost("it has ended")
        token = self._next_token
        self._next_token += 1
        try:
            socket.send_fds(self._control, [msgspec.json.encode({"fork": token})], fds)
        except OSError as error:
            raise SpareLost(f"it cannot be reached: {error.strerror}") from error
        fork = self._forks[token] = _Fork(self._loop.create_future(), sock, output)
        return fork

    async def close(self) -> None:
        """Dismiss the spare: it leaves at end-of-file; one that does not is killed."""
        self._lose("it was dismissed")
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            kill_group(self._process.pid)
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
                _refuse(self._forks.pop(token).forked, why)
            case {"exited": pid, "status": status}:
                self._workers.pop(pid).has_exited(status)
                if self.empty:
                    self._on_empty()

    def _lose(self, why: str) -> None:
        if self.lost:
            return
        self.lost = True
        self._loop.remove_reader(self._control)
        self._control.close()
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

    Args:
        linger_s: how long the spare stays after the last of its workers has left.
    """

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s
        self._spare: Spare | None = None
        self._starting = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._dismissal: asyncio.Task[None] | None = None
        self._fallback: Launcher = ExecLauncher()

    async def warm_up(self) -> None:
        try:
            await self._ready_spare()
        except SpareLost as error:
            _log.warning("the spare did not start: %s", error)
        else:
            self._begin_linger()

    async def launch(self, name: str) -> Process:
        try:
            spare = await self._ready_spare()
            return await spare.fork(name)
        except SpareLost as error:
            _log.warning("no worker from the spare: %s; executing a fresh one", error)
            return await self._fallback.launch(name)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._dismissal is not None:
            await self._dismissal
        if self._spare is not None:
            await self._spare.close()

    async def _ready_spare(self) -> Spare:
        async with self._starting:
            if self._spare is None or self._spare.lost:
                self._spare = await Spare.start(self._begin_linger)
            return self._spare

    def _begin_linger(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._end_linger)

    def _end_linger(self) -> None:
        # The timer only advises: a worker may have come since, and its end sets the timer again.
        if self._spare is not None and not self._spare.lost and self._spare.empty:
            spare, self._spare = self._spare, None
            _log.info("spare dismissed", extra={"fields": {"after_s": self._linger_s}})
            self._dismissal = asyncio.create_task(spare.close())
