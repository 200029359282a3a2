"""How the daemon is told to stop, and how it stops: in order, or at once."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from snoozeml.lifecycle.registry import Registry
from snoozeml.serving.inference import Serving

_log = logging.getLogger("snoozeml.daemon")

_FORCED_CLOSE_S: Final = 5.0  # for killed workers to be reaped and last answers to be written

_LEAVE_S: Final = 2.0  # for all that Python does at the end, which takes milliseconds


class Front(Protocol):
    """A way in that clients have connections to."""

    async def close(self) -> None:
        """Answer what has been accepted, then close the connections."""

    async def abort(self) -> None:
        """Cut the connections."""


class Shutdown:
    """Told once, the daemon answers what it has accepted; told again, it stops at once."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._forced = asyncio.Event()

    async def asked(self) -> None:
        """Return when the daemon shall stop."""
        await self._asked.wait()

    def heed_signals(self, on_hang_up: Callable[[], object]) -> None:
        """From now on a signal tells us, the end of our terminal included.

        Args:
            on_hang_up: called when SIGHUP means something else than that.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask)
        had_terminal = _has_terminal()

        def hung_up() -> None:
            if had_terminal and not _has_terminal():  # its window has been closed
                self._ask()
            else:
                on_hang_up()

        loop.add_signal_handler(signal.SIGHUP, hung_up)

    async def carry_out(
        self, serving: Serving, registry: Registry, fronts: Sequence[Front], drain_s: float
    ) -> bool:
        """Admit nothing new, answer what was accepted, then close the connections.

        Returns:
            whether everything accepted was answered in time.
        """
        _log.info("draining")
        serving.drain()
        deadline = asyncio.get_running_loop().time() + drain_s
        answered = await self._before(deadline, registry.close())
        if not answered:
            _log.warning("stopping at once: accepted work is cut off")
            registry.kill()
            deadline = asyncio.get_running_loop().time() + _FORCED_CLOSE_S
            if not await _until(deadline, registry.close()):
                _log.error("workers that were killed are not gone; leaving without them")
                os._exit(1)
        written = await self._before(deadline, _all(front.close() for front in fronts))
        if not written:
            await _all(front.abort() for front in fronts)
        return answered and written

    def _ask(self) -> None:
        (self._forced if self._asked.is_set() else self._asked).set()

    async def _before(self, deadline: float, work: Awaitable[None]) -> bool:
        """Whether the work ended before the deadline, and before somebody lost patience."""
        working = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self._forced.wait())
        timeout_s = deadline - asyncio.get_running_loop().time()
        await asyncio.wait(
            [working, forced], timeout=max(0.0, timeout_s), return_when=asyncio.FIRST_COMPLETED
        )
        done = working.done()
        for task in (working, forced):
            task.cancel()
        return done


def leave_soon(code: int, finish_log: Callable[[], None]) -> None:
    """See that this process ends once all is done, whatever its threads do.

    Python waits for every thread at the end. One that looks at files may never come back: a network
    file system may have gone.

    Args:
        code: the exit code.
    """

    def leave() -> None:
        _log.warning("stopped without waiting for a thread that hangs")
        finish_log()
        os._exit(code)

    timer = threading.Timer(_LEAVE_S, leave)
    timer.daemon = True
    timer.start()


async def _until(deadline: float, work: Awaitable[None]) -> bool:
    """Whether the work ended before the deadline."""
    try:
        async with asyncio.timeout_at(deadline):
            await work
    except TimeoutError:
        return False
    return True


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(work)


def _has_terminal() -> bool:
    return os.isatty(0)
