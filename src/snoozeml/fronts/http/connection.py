"""uvicorn's HTTP/1.1 protocol, with what a client that leaves or stammers means here."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from snoozeml.errors import HeadTooLarge, InvalidInput, SnoozeError
from snoozeml.fronts.http.replies import STATUS, error_body, error_headers
from snoozeml.fronts.http.transport import HoldingTransport
from snoozeml.fronts.manners import new_request_id

STATE_KEY = "connection"
"""Where the application finds its connection in `scope["state"]`."""


# What a request line and its headers may take together; more than any honest client sends.
_LARGEST_HEAD_BYTES: Final = 64 * 1024
_FRAMING_PER_BYTE: Final = 8
_BODY_FOLLOWS: Final = frozenset({b"content-length", b"transfer-encoding"})


class Connection(HttpToolsProtocol):
    """One client connection.

    Attributes:
        on_gone: called when the client leaves while its request is being answered.
        answers: the transport, for an answer that wants to be sent in one piece.
    """

    on_gone: Callable[[], None] | None = None
    on_closed: Callable[[], None]
    answers: HoldingTransport

    def __init__(self, on_closed: Callable[[], None], **arguments: Any) -> None:
        super().__init__(**arguments, app_state={STATE_KEY: self})
        self.on_closed = on_closed
        self._head_bytes = 0
        self._framing_bytes = 0
        self._refusal: SnoozeError = _NOT_HTTP

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.answers = HoldingTransport(transport)
        super().connection_made(self.answers)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_gone is not None:
            self.on_gone()
        self.on_closed()

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            cycle = self.cycle
            if cycle is not None and cycle.more_body:
                self._feed_body(data)
                return
            # A piece is no larger than what the head may still take.
            piece = data[: _LARGEST_HEAD_BYTES - self._head_bytes]
            data = data[len(piece) :]
            self._feed_head(piece)

    def _feed_head(self, piece: bytes) -> None:
        cycle = self.cycle
        super().data_received(piece)
        if self.cycle is not cycle:
            self._head_bytes = self._framing_bytes = 0
            return
        self._head_bytes += len(piece)
        if self._head_bytes >= _LARGEST_HEAD_BYTES:
            self._refuse(_HEAD_TOO_LARGE)

    def _feed_body(self, data: bytes) -> None:
        # Chunk sizes and trailers cost memory or time, and carry nothing: a body may not consist
        # of them. One-byte chunks take seven bytes for each of theirs.
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._framing_bytes > _LARGEST_HEAD_BYTES:
            self._refuse(_HEAD_TOO_LARGE)
        # A large body is no credit for trailers as large.
        self._framing_bytes = max(self._framing_bytes, -_LARGEST_HEAD_BYTES)

    def on_headers_complete(self) -> None:
        # The parser would take the body for the other protocol's first words.
        if self.parser.should_upgrade() and any(name in _BODY_FOLLOWS for name, _ in self.headers):
            self._refusal = _NO_UPGRADE
            raise ValueError("an upgrade beside a body")  # ends in `send_400_response`
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.cycle is None or self.cycle.scope is not self.scope:  # else it is a trailer
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= _FRAMING_PER_BYTE * len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    def _refuse(self, error: SnoozeError) -> None:
        """Answer what is no request, and hang up."""
        if self.transport.is_closing():
            return
        request_id = new_request_id()
        body = error_body(error, request_id)
        lines = [STATUS_LINE[STATUS[error.code]]]
        for name, value in (
            *error_headers(error, request_id),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ):
            lines.append(name + b": " + value + b"\r\n")
        self.transport.write(b"".join((*lines, b"\r\n", body)))
        self.transport.close()


_NOT_HTTP: Final = InvalidInput(
    "this is not a valid HTTP/1.1 request: check the request line, the header lines and the chunk "
    "sizes"
)
_NO_UPGRADE: Final = InvalidInput(
    "this server speaks HTTP/1.1 only; send a request with a body without the Upgrade header"
)
_HEAD_TOO_LARGE: Final = HeadTooLarge(
    f"what comes around the body (request line, headers, chunk sizes, trailers) is larger than the "
    f"limit of {_LARGEST_HEAD_BYTES} bytes"
)
