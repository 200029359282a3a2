"""Unary calls served by pygrpc-native, whose HTTP/2 runs outside the interpreter.

It hands over each call as an event, and takes the answer by the call's number. Calls with a stream
of requests, which it does not serve, it passes on to `Backstage`.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pygrpc_native import EVENT_CANCEL, NativeGrpcFront

from snoozeml.errors import SnoozeError
from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.backstage import Backstage
from snoozeml.fronts.grpc.calls import Answer, Asking, Call, Failure, Unary
from snoozeml.fronts.grpc.limits import CALLS_AT_ONCE, METADATA_BYTES, milliseconds
from snoozeml.fronts.grpc.status import failure_of
from snoozeml.fronts.limits import ClientLimits
from snoozeml.lifecycle.ticket import Outcome

_EVENTS_AT_ONCE: Final = 64
_IO_THREADS: Final = 1
_GRACE_S: Final = 0.2

_Event = tuple[int, int, int, bytes | None, bytes | str | None, Any]


class NativeServer:
    """See `servers.GrpcServer`; serves without TLS.

    Args:
        address: numeric, with a port; port 0 takes a free one.

    Raises:
        OSError: the address cannot be had.
    """

    def __init__(self, address: str, limits: ClientLimits) -> None:
        self._front = NativeGrpcFront(
            address,
            [],
            io_threads=_IO_THREADS,
            call_details=True,
            keepalive_time_ms=milliseconds(limits.keep_alive_s),
            keepalive_timeout_ms=milliseconds(limits.transfer_timeout_s),
            max_concurrent_streams=CALLS_AT_ONCE,
            max_metadata_size=METADATA_BYTES,
        )
        self.address: Final = f"{address.rpartition(':')[0]}:{self._front.bound_port}"
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, Callable[[], object]] = {}  # and how each is withdrawn
        self._none_left: asyncio.Event | None = None

    async def start(self, app: GrpcApp) -> None:
        self._app = app
        numbers = self._front.add_methods([(path, False) for path in app.unary])
        handlers = [(handler, app.asking.get(path)) for path, handler in app.unary.items()]
        self._handlers = dict(zip(numbers, handlers, strict=True))
        self._backstage = Backstage(app, self._limits)
        await self._backstage.listen()
        self._front.set_fallback(self._backstage.name)
        self._front.start()
        threading.Thread(target=self._receive, name="grpc", daemon=True).start()

    async def close(self) -> None:
        await asyncio.sleep(_GRACE_S)  # a request that is on its way gets an answer, if a refusal
        await self._backstage.close()
        self._none_left = asyncio.Event()
        if self._calls:
            await self._none_left.wait()
        await asyncio.to_thread(self._front.close)

    async def abort(self) -> None:
        for withdraw in list(self._calls.values()):
            withdraw()
        await self._backstage.abort()
        await asyncio.to_thread(self._front.close)

    def _receive(self) -> None:
        """Carry events to the loop; the thread ends when the front is closed."""
        receive, hand_over = self._front.recv_batch_details, self._loop.call_soon_threadsafe
        while (events := receive(_EVENTS_AT_ONCE)) is not None:
            try:
                hand_over(self._take, events)
            except RuntimeError:  # the loop has been closed meanwhile
                return
            del events  # or the messages would stay for as long as none comes

    def _take(self, events: list[_Event]) -> None:
        for kind, call_id, method, body, _, details in events:
            if kind == EVENT_CANCEL:
                # Forgotten here, too: a task that is cancelled before its first step runs no code.
                if (withdraw := self._forget(call_id)) is not None:
                    withdraw()
                continue
            assert body is not None  # only a cancellation has none
            metadata, _peer, left_s = details
            call = Call(metadata, None if left_s is None else time.monotonic() + left_s)
            handler, asking = self._handlers[method]
            if asking is None:
                task = self._loop.create_task(self._answer(call_id, handler, call, body))
                self._calls[call_id] = task.cancel
            else:
                self._ask(call_id, asking, call, body)

    def _ask(self, call_id: int, asking: Asking, call: Call, body: bytes) -> None:
        """Ask a model; a task for each of these calls would cost a tenth of the loop's time."""
        held, size_bytes = self._app.held, len(body)
        try:
            held.check(size_bytes)
            ticket = asking.begin(call, body)
        except Exception as error:  # whatever it is, the client must hear of it
            self._finish(call_id, failure_of(error, call))
            return
        held.size_bytes += size_bytes
        self._calls[call_id] = ticket.abandon
        ticket.tell(partial(self._asked, call_id, asking, call, size_bytes))

    def _asked(
        self, call_id: int, asking: Asking, call: Call, size_bytes: int, found: Outcome
    ) -> None:
        self._app.held.size_bytes -= size_bytes
        try:
            if isinstance(found, SnoozeError):
                outcome: Answer | Failure = failure_of(found, call)
            else:
                outcome = asking.end(call, found)
        except Exception as error:
            outcome = failure_of(error, call)
        self._finish(call_id, outcome)

    async def _answer(self, call_id: int, handler: Unary, call: Call, body: bytes) -> None:
        self._finish(call_id, await self._app.answer(handler, call, body))

    def _finish(self, call_id: int, outcome: Answer | Failure) -> None:
        self._forget(call_id)
        if isinstance(outcome, Failure):
            self._front.fail(call_id, outcome.code, outcome.message, outcome.trailing)
        else:
            self._front.respond(call_id, outcome.body, None, outcome.trailing)

    def _forget(self, call_id: int) -> Callable[[], object] | None:
        """The call is over; returns how it would have been withdrawn, unless it was over before."""
        withdraw = self._calls.pop(call_id, None)
        if self._none_left is not None and not self._calls:
            self._none_left.set()
        return withdraw
