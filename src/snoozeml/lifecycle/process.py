"""Worker processes as the daemon sees them: started, watched, ended, reaped."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import deque
from typing import Final, Protocol, cast

from snoozeml.lifecycle.memory import family
from snoozeml.lifecycle.printed import printed
from snoozeml.lifecycle.taking_over import taken_over

_log = logging.getLogger("snoozeml.worker")

_TAIL_LINES = 20
_LONGEST_LINE_BYTES = 4096

# A pipe is read in pieces of 64 KiB or more, so a piece a second it is.
_CONFINED_OUTPUT_BYTES_PER_S: Final = 16 * 1024

WORKER_ENVIRONMENT = {
    # ONNX Runtime's official builds report to their vendor unless told not to.
    "ORT_DISABLE_TELEMETRY": "1",
    # numpy's BLAS would start threads of its own, and a process with threads cannot fork safely.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # `cuda:1` is then the device that the driver's own tools, and our accounts, call number 1.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}


_HARMLESS: Final = {
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LANG", "LC_ALL",
    "LC_CTYPE", "TZ", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
}  # fmt: skip


class OutputTail(asyncio.Protocol):
    """Drains what a process prints into the log, and remembers the last lines.

    A pipe that nobody reads blocks its writer once it is full: every child's output is read.

    Args:
        bytes_per_s: whoever prints more than this waits; None: nobody does.
    """

    def __init__(self, name: str, bytes_per_s: int | None = None) -> None:
        self._name = name
        self._bytes_per_s = bytes_per_s
        self._this_second_bytes = 0
        self._transport: asyncio.ReadTransport | None = None
        self._partial = b""
        self.lines: deque[str] = deque(maxlen=_TAIL_LINES)

    @classmethod
    async def attach(cls, name: str, bytes_per_s: int | None = None) -> tuple["OutputTail", int]:
        """Make a pipe that is read from now on.

        Returns:
            the reader, and the write end, which the caller passes to the child and closes.
        """
        read_fd, write_fd = os.pipe()
        tail = cls(name, bytes_per_s)
        pipe = os.fdopen(read_fd, "rb", buffering=0)
        try:
            await taken_over(asyncio.get_running_loop().connect_read_pipe(lambda: tail, pipe))
        except BaseException:
            os.close(write_fd)
            raise
        return tail, write_fd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)  # uvloop's has other bases

    def data_received(self, data: bytes) -> None:
        self._slow_down(len(data))
        *lines, partial = (self._partial + data).split(b"\n")
        if len(partial) > _LONGEST_LINE_BYTES:
            lines, partial = [*lines, partial], b""
        self._partial = partial
        for line in lines:
            self._keep(line)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._partial:
            self._keep(self._partial)
            self._partial = b""

    def _slow_down(self, size_bytes: int) -> None:
        if self._bytes_per_s is None or self._transport is None:
            return
        if not self._this_second_bytes:
            asyncio.get_running_loop().call_later(1.0, self._begin_second)
        self._this_second_bytes += size_bytes
        if self._this_second_bytes > self._bytes_per_s:
            self._transport.pause_reading()

    def _begin_second(self) -> None:
        self._this_second_bytes = 0
        if self._transport is not None:
            self._transport.resume_reading()

    def _keep(self, line: bytes) -> None:
        text = printed(line[:_LONGEST_LINE_BYTES])
        if text:
            self.lines.append(text)
            _log.info("%s", text, extra={"fields": {"worker": self._name}})


def describe_exit(status: int | None) -> str:
    """Say how a process ended, from its exit status: negative is a signal, None unknown."""
    if status is None:
        return "ended, nobody saw how"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


class Process(Protocol):
    """A running worker process, leader of its own process group."""

    pid: int
    sock: socket.socket
    output: OutputTail

    async def wait(self) -> int | None:
        """Wait until it has been reaped.

        Returns:
            its exit status; negative is a signal, None unknown.
        """


class Launcher(Protocol):
    """Starts worker processes."""

    async def launch(self, name: str) -> Process:
        """Start a worker that reads frames from the other end of `Process.sock`.

        Args:
            name: appears in the log beside what the process prints.

        Raises:
            ModelFailed: no process could be started.

        Cancellation leaves no process behind: its end of the socket is closed, so it leaves.
        """

    async def warm_up(self) -> None:
        """Prepare for the first launch, so that it is as quick as the later ones."""

    async def close(self) -> None:
        """Give up what the launcher keeps for itself."""


def kill_group(pid: int) -> None:
    """SIGKILL a process that was started as leader of its own group, and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_worker(pid: int) -> None:
    """SIGKILL a worker that runs, its group, and those of its family that have left the group."""
    relatives = family(pid)
    kill_group(pid)
    for one in relatives:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)


class ExecProcess:
    def __init__(
        self, process: asyncio.subprocess.Process, sock: socket.socket, output: OutputTail
    ) -> None:
        self._process = process
        self.pid = process.pid
        self.sock = sock
        self.output = output

    async def wait(self) -> int | None:
        return await self._process.wait()


async def exec_python(
    *arguments: str,
    name: str,
    kind: int = socket.SOCK_STREAM,
    confined: bool = False,
) -> tuple[asyncio.subprocess.Process, socket.socket, OutputTail]:
    """Execute `python -m arguments… --fd N` in a process group of its own.

    Args:
        kind: type of the socketpair of which the child gets descriptor N.
        confined: it sees nothing of our environment but what running Python and finding libraries
            takes, and no modules in the working directory, whatever that holds.
    """
    names = _HARMLESS & os.environ.keys() if confined else os.environ
    environ = {name: os.environ[name] for name in names}
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    try:
        output, write_fd = await OutputTail.attach(
            name, _CONFINED_OUTPUT_BYTES_PER_S if confined else None
        )
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(["-P"] if confined else []),
                "-m",
                *arguments,
                "--fd",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**environ, **WORKER_ENVIRONMENT},
            )
        finally:
            os.close(write_fd)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return process, ours, output


class ExecLauncher:
    """Executes a fresh interpreter for every worker: slower, and safe where fork is not.

    Args:
        confined: for models that nobody vouches for: see `exec_python`.
    """

    def __init__(self, *, confined: bool = False) -> None:
        self._confined = confined

    async def launch(self, name: str) -> Process:
        found = await exec_python("snoozeml.worker", name=name, confined=self._confined)
        return ExecProcess(*found)

    async def warm_up(self) -> None:
        """There is nothing to prepare."""

    async def close(self) -> None:
        """Nothing is kept."""


CONFINED: Final = ExecLauncher(confined=True)
