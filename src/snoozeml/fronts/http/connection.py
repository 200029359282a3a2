"""uvicorn's HTTP/1.1 protocol, with what a client that leaves or stammers means here."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from snoozeml.errors import HeadTooLarge, InvalidInput, SnoozeError
from snoozeml.fronts.http.replies import STATUS, error_body, error_headers, new_request_id
from snoozeml.fronts.http.transport import HoldingTransport

STATE_KEY = "connection"
"""Where the application finds its connection in `scope["state"]`."""


# What a request line and its headers may take together; more than any honest client sends.
_LARGEST_HEAD_BYTES: Final = 64 * 1024


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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.answers = HoldingTransport(transport)
        super().connection_made(self.answers)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_gone is not None:
            self.on_gone()
        self.on_closed()

    def data_received(self, data: bytes) -> None:
        # A piece is no larger than a head may be: then a head that fits in ends in its first piece.
        while len(data) > _LARGEST_HEAD_BYTES:
            self._feed(data[:_LARGEST_HEAD_BYTES])
            data = data[_LARGEST_HEAD_BYTES:]
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        cycle = self.cycle
        reading_body = cycle is not None and cycle.more_body
        if self.transport.is_closing():
            return  # an earlier piece was refused
        super().data_received(data)
        if reading_body or self.cycle is not cycle:
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > _LARGEST_HEAD_BYTES:
            self._refuse(_HEAD_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:
        self._refuse(_NOT_HTTP)

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
_HEAD_TOO_LARGE: Final = HeadTooLarge(
    f"request line and headers together are larger than the limit of {_LARGEST_HEAD_BYTES} bytes"
)
