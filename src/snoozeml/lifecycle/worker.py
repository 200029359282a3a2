"""One started worker: its process and its channel, from the first frame to the reaping."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from snoozeml.core import heap
from snoozeml.core.plan import WorkerReady, WorkerSpec
from snoozeml.errors import ModelFailed, from_code
from snoozeml.lifecycle.channel import LARGEST_FRAME_BYTES, Channel
from snoozeml.lifecycle.failures import failure_in
from snoozeml.lifecycle.process import Launcher, Process, describe_exit, kill_group, kill_worker
from snoozeml.wire.frames import Frame, Kind

_log = logging.getLogger("snoozeml.worker")

# A worker whose socket is closed has nothing left to do but to exit. Nor has one that is asked to
# leave, since nobody waits for it any more; but it may be in the middle of a run that nobody wants.
_EXIT_TIMEOUT_S = 1.0
_STOP_TIMEOUT_S = 2.0


# An answer is whole in our memory before it goes to its client; it must not fill that.
_CONFINED_FRAME_BYTES: Final = 256 * 2**20

Released = Callable[[int], Awaitable[None]]


class DiedLoading(ModelFailed):
    """A process ended before the model was ready.

    Attributes:
        status: how, as an exit status; negative is a signal, None unknown.
    """

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class Worker:
    """Use `Worker.start`.

    Attributes:
        ready: what the worker said when its model was loaded.
        exited: resolves to the exit status once the process has been reaped, all that it sent has
            been read, and all that it held is free.
    """

    ready: WorkerReady
    exited: "asyncio.Task[int | None]"

    def __init__(
        self, process: Process, on_frames: Callable[[list[Frame]], None], released: Released
    ) -> None:
        self._process = process
        self._on_frames = on_frames
        self._released = released
        self._loaded: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        self.pid = process.pid
        self.channel: Channel

    @classmethod
    async def start(
        cls,
        launcher: Launcher,
        spec: WorkerSpec,
        on_frames: Callable[[list[Frame]], None],
        released: Released,
    ) -> "Worker":
        """Start a process, and wait until it has loaded the model.

        Args:
            on_frames: gets everything that the worker sends after it is ready.
            released: returns when the memory of a process that has been reaped is free.

        Raises:
            SnoozeError: the worker's own reason why it could not load.
            DiedLoading: the process ended before it was ready.

        Whenever this raises, cancellation included, the process has been killed and reaped.
        """
        worker = cls(await launcher.launch(spec.model_id), on_frames, released)
        worker.exited = asyncio.create_task(worker._watch())
        try:
            largest_bytes = LARGEST_FRAME_BYTES if spec.sandbox is None else _CONFINED_FRAME_BYTES
            worker.channel = await Channel.open(
                worker._process.sock, worker._receive, worker._lost.set, largest_bytes
            )
            worker.channel.send_struct(Kind.START, spec)
            worker.ready = await worker._until_loaded(spec.model_id)
        except BaseException:
            worker.kill()
            await asyncio.shield(worker.exited)
            raise
        return worker

    async def stop(self) -> None:
        """Ask the worker to leave when its hands are empty; kill it if it does not; reap it."""
        self.channel.send(Kind.STOP)
        await asyncio.wait([self.exited], timeout=_STOP_TIMEOUT_S)
        if not self.exited.done():
            _log.warning(
                "worker did not leave within %g s, killing it",
                _STOP_TIMEOUT_S,
                extra={"fields": {"pid": self.pid}},
            )
            self.kill()
            await self.exited

    def kill(self) -> None:
        """End it at once; `exited` tells when it is gone."""
        if not self.exited.done():
            kill_worker(self.pid)

    @property
    def last_output(self) -> deque[str]:
        return self._process.output.lines

    async def _until_loaded(self, model_id: str) -> WorkerReady:
        outcomes: tuple[asyncio.Future[Any], ...] = (self._loaded, self.exited)
        await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
        if not self._loaded.done():
            status = self.exited.result()
            how = f"the worker {describe_exit(status)} while it loaded the model"
            raise DiedLoading(how, status)
        frame = self._loaded.result()
        if frame.kind == Kind.READY:
            return msgspec.json.decode(frame.body, type=WorkerReady)
        failure = failure_in(frame.body)
        if failure.traceback and failure.code == "internal":
            fields = {"model": model_id}
            _log.error("loading failed:\n%s", failure.traceback, extra={"fields": fields})
        raise from_code(failure.code, failure.message)

    def _receive(self, frames: list[Frame]) -> None:
        if not self._loaded.done():
            self._loaded.set_result(frames.pop(0))
        if frames:
            self._on_frames(frames)

    async def _watch(self) -> int | None:
        """Reap the process, read all that it sent, and leave nothing of its group behind."""
        exit_seen = asyncio.create_task(self._process.wait())
        lost = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait([exit_seen, lost], return_when=asyncio.FIRST_COMPLETED)
            _, late = await asyncio.wait([exit_seen, lost], timeout=_EXIT_TIMEOUT_S)
            if exit_seen in late:
                kill_worker(self.pid)
            status = await exit_seen
            kill_group(self.pid)  # whatever it started and left behind
            if lost in late:
                self._process.sock.close()
            await self._released(self.pid)
            heap.trim()  # of what its requests and answers took here
            return status
        finally:
            lost.cancel()
