"""uvicorn's HTTP/1.1 protocol, with what a client that leaves or stammers means here."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from snoozeml.errors import SnoozeError
from snoozeml.fronts.http import refusals
from snoozeml.fronts.http.crowd import Crowd
from snoozeml.fronts.http.held import HeldBodies
from snoozeml.fronts.http.limits import LARGEST_HEAD_BYTES, Stage, Transfer
from snoozeml.fronts.http.replies import CLOSE, STATUS, Headers, error_body, error_headers
from snoozeml.fronts.http.transport import WatchedTransport
from snoozeml.fronts.manners import new_request_id

STATE_KEY = "connection"
"""Where the application finds its connection in `scope["state"]`."""

_FRAMING_PER_BYTE: Final = 8
_BODY_FOLLOWS: Final = frozenset({b"content-length", b"transfer-encoding"})
_SWALLOW_BYTES: Final = 256 * 2**20  # whoever sends more than this after a refusal is not listening


class Connection(HttpToolsProtocol):
    """One client connection.

    Attributes:
        on_gone: called when the client leaves while its request is being answered.
        transfer: what the client is in the middle of sending or being sent.
    """

    on_gone: Callable[[], None] | None = None
    on_closed: Callable[[], None]

    def __init__(self, on_closed: Callable[[], None], crowd: Crowd, **arguments: Any) -> None:
        super().__init__(**arguments, app_state={STATE_KEY: self})
        self.on_closed = on_closed
        self.transfer: Transfer | None = None
        self._crowd: Final = crowd
        self._head_bytes = 0
        self._framing_bytes = 0
        self._held: Final = HeldBodies(self, crowd)
        self._body_bytes = 0
        self._served: RequestResponseCycle | None = None  # where requests are pipelined, the first
        self._unsent_bytes = 0
        self._refusal: SnoozeError = refusals.NOT_HTTP

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(WatchedTransport(transport, self._linger, self._await_reader))
        if not self._crowd.welcome():
            if self._crowd.is_full:
                transport.abort()
                return
            self.app = refusals.only_health(self.app)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._crowd.left(self)
        self._abandon()
        self.on_closed()

    def data_received(self, data: bytes) -> None:
        if self._is_hanging_up:
            self._swallow(data)
            return
        self._feed(data)
        if self.transfer is not None or self._head_bytes or self._is_amid_body:
            self._note_stage()

    def _feed(self, data: bytes) -> None:
        while data and not (self.transport.is_closing() or self._is_hanging_up):
            cycle = self.cycle
            if cycle is not None and cycle.more_body:
                self._feed_body(data)
                return
            # A piece is no larger than what the head may still take.
            piece = data[: LARGEST_HEAD_BYTES - self._head_bytes]
            data = data[len(piece) :]
            self._feed_head(piece)

    def _feed_head(self, piece: bytes) -> None:
        cycle = self.cycle
        super().data_received(piece)
        if self.cycle is not cycle:
            self._head_bytes = self._framing_bytes = 0
            return
        self._head_bytes += len(piece)
        if self._head_bytes >= LARGEST_HEAD_BYTES:
            self._refuse(refusals.HEAD_TOO_LARGE)

    def _feed_body(self, data: bytes) -> None:
        # Chunk sizes and trailers cost memory or time, and carry nothing: a body may not consist
        # of them. One-byte chunks take seven bytes for each of theirs.
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._framing_bytes > LARGEST_HEAD_BYTES:
            self._refuse(refusals.HEAD_TOO_LARGE)
        # A large body is no credit for trailers as large.
        self._framing_bytes = max(self._framing_bytes, -LARGEST_HEAD_BYTES)

    def on_headers_complete(self) -> None:
        if self._is_hanging_up:
            raise ValueError("a request behind one that was refused")
        refusal = self._why_unclear()
        if refusal is not None:
            self._refusal = refusal
            raise ValueError("a head that is not clear")  # ends in `send_400_response`
        super().on_headers_complete()
        self._unset_keepalive_if_required()  # set in vain at the end of a body that was refused
        if not self.pipeline:
            self._served = self.cycle
        self._held.begin()
        self._body_bytes = 0

    def _why_unclear(self) -> SnoozeError | None:
        """What could be understood in another way by a proxy, or by the parser itself.

        See RFC 9112, sections 3.2 and 6.1.
        """
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            return refusals.NOT_ONE_HOST
        if b"transfer-encoding" in names and not _is_chunked(self.headers):
            return refusals.NOT_CHUNKED
        # The parser would take the body for the other protocol's first words.
        if self.parser.should_upgrade() and not _BODY_FOLLOWS.isdisjoint(names):
            return refusals.NO_UPGRADE
        return None

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.cycle is None or self.cycle.scope is not self.scope:  # else it is a trailer
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        if self._is_hanging_up:
            return
        self._framing_bytes -= _FRAMING_PER_BYTE * len(body)
        super().on_body(body)
        self._body_bytes += len(body)
        if not self.cycle.response_complete:
            self._held.add(len(body))

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete and not self._is_hanging_up:  # answered before its end
            self.cycle.more_body = False
            self._wait_for_request()

    def on_response_complete(self) -> None:
        self._held.drop_first()
        if self._is_hanging_up:
            return
        if self.pipeline:
            self._served = self.pipeline[-1][0]
        super().on_response_complete()

    def _wait_for_request(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def shutdown(self) -> None:
        super().shutdown()
        if self._is_hanging_up:
            self.transport.close()

    def answer(self, headers: Headers, body: bytes | memoryview) -> bool:
        """Send a whole good answer in one system call, past the protocol's own way.

        That checks once more what is known here, and took a tenth of all that a small request
        costs.

        Returns:
            whether it is sent, or nobody is left to read it; else the client does not read now.
        """
        cycle = self._served
        if cycle is None or self.flow.write_paused:
            return False
        if cycle.disconnected:
            return True
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        close = () if cycle.keep_alive else (CLOSE,)
        head = _head(200, (*cycle.default_headers, *headers, *close), len(body))
        self.transport.writelines((head, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def pass_body_on(self) -> None:
        """The body that is on its way goes to disk as it comes, and is not held in memory."""
        self._held.pass_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not (self.transport.is_closing() or self._is_hanging_up):
            self._note_stage()

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        super().timeout_keep_alive_handler()

    # What the crowd asks

    @property
    def idle_until(self) -> float | None:
        timer = self.timeout_keep_alive_task
        return timer.when() if timer is not None else None

    def due_at(self, now: float) -> float:
        transfer = self.transfer
        assert transfer is not None
        if transfer.stage is Stage.ANSWER:
            transfer.moved_bytes = self._unsent_bytes - self.transport.get_write_buffer_size()
        elif transfer.stage is Stage.BODY:
            transfer.moved_bytes = self._body_bytes
        if transfer.stage in (Stage.HEAD, Stage.BODY) and self._is_held_up:
            transfer.since = now
        return transfer.due_at(self._crowd.limits)

    def expire(self) -> None:
        assert self.transfer is not None
        limits = self._crowd.limits
        if self.transfer.stage is Stage.HEAD:
            self._refuse(refusals.slow_head(limits))
        elif self.transfer.stage is Stage.BODY:
            self._refuse(refusals.slow_body(limits))
        elif self._is_hanging_up and not self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            self.transport.abort()

    def give_way(self) -> None:
        if self.transfer is None:
            self.transport.close()
        elif self.transfer.stage in (Stage.HEAD, Stage.BODY):
            self._refuse(refusals.TOO_MANY)
            self.transport.close()
        else:
            self.transport.abort()

    def give_up_body(self) -> None:
        self._refuse(refusals.TOO_MUCH)

    @property
    def _is_held_up(self) -> bool:
        """Whether it is we who do not read on, or who have not answered an earlier request."""
        cycle = self.cycle
        if self.flow.read_paused or cycle is None:
            return self.flow.read_paused
        return not (cycle.more_body or cycle.response_complete)

    @property
    def _is_amid_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body

    @property
    def _is_hanging_up(self) -> bool:
        return self.transfer is not None and self.transfer.stage is Stage.HANG_UP

    def _note_stage(self) -> None:
        """See what the client is in the middle of now."""
        if self.flow.write_paused or self._is_hanging_up or self.transport.is_closing():
            return
        if self._is_amid_body:
            self._enter(Stage.BODY)
        elif self._head_bytes:
            self._enter(Stage.HEAD)
        elif self.transfer is not None:
            self.transfer = None
            self._crowd.forget(self)

    def _enter(self, stage: Stage) -> None:
        if self.transfer is None or self.transfer.stage is not stage:
            self.transfer = Transfer(stage, self.loop.time())
            self._crowd.watch(self)

    def _await_reader(self) -> None:
        """There is more to send than the client takes now."""
        if not self._is_hanging_up:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self._enter(Stage.ANSWER)

    # Refusing

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    def _refuse(self, error: SnoozeError) -> None:
        """Answer what is no request, or will never be a whole one, and hang up."""
        if self.transport.is_closing() or self._is_hanging_up:
            return
        cycle = self._served
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()  # half an answer has gone out; two would be taken for one
            return
        if self._is_amid_body and self.cycle.response_complete:
            self._hang_up()  # another answer would be taken for that to the next request
            return
        request_id = new_request_id()
        body = error_body(error, request_id)
        headers = (*error_headers(error, request_id), CLOSE)
        self.transport.write(_head(STATUS[error.code], headers, len(body)) + body)
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection once the client has closed it, or has nothing more to say.

        Closing on unread bytes would reset the connection, and a client that is still writing would
        find that instead of its answer.
        """
        self._enter(Stage.HANG_UP)
        self._abandon()
        self._unset_keepalive_if_required()
        self.transport.write_eof()
        self.flow.resume_reading()

    def _linger(self) -> bool:
        """Hang up rather than close where a body is still on its way."""
        awaits_leave = self.expect_100_continue and not self._body_bytes
        if self._is_hanging_up or awaits_leave or not self._is_amid_body:
            return False
        self._hang_up()
        return True

    def _swallow(self, data: bytes) -> None:
        assert self.transfer is not None
        self.transfer.heard_at = self.loop.time()
        self.transfer.moved_bytes += len(data)
        if self.transfer.moved_bytes > _SWALLOW_BYTES:
            self.transport.close()

    def _abandon(self) -> None:
        """Nobody waits for what is being done for this client any more."""
        self._held.drop_all()
        self.pipeline.clear()
        cycle = self._served
        if cycle is None or cycle.response_complete:
            return
        cycle.disconnected = True
        cycle.message_event.set()
        if self.on_gone is not None:
            self.on_gone()


def _is_chunked(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a body comes in chunks, and in nothing else."""
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    return codings == [b"chunked"]


def _head(status: int, headers: Iterable[tuple[bytes, bytes]], body_bytes: int) -> bytes:
    """An answer up to its body."""
    lines = [STATUS_LINE[status]]
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
    lines.append(b"content-length: %d\r\n\r\n" % body_bytes)
    return b"".join(lines)
