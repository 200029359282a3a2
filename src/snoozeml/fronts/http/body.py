"""Bodies of requests: read within their limit, or refused."""

import asyncio
import contextlib
from typing import Final

from starlette.types import Receive, Send

from snoozeml.errors import Cancelled, PayloadTooLarge
from snoozeml.fronts.http.compression import inflate
from snoozeml.fronts.http.replies import STATUS, error_body, error_headers
from snoozeml.fronts.http.request import Request
from snoozeml.fronts.manners import new_request_id

# After a body that is too large, this much more is read and thrown away, so that a client that
# writes before it reads finds the answer rather than a reset connection.
_SWALLOW_BYTES: Final = 1024 * 1024
_SWALLOW_S: Final = 1.0


class BodyReader:
    """Reads whole bodies.

    Args:
        max_bytes: what a body may have, compressed or not.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def read(self, request: Request, receive: Receive) -> list[bytes]:
        """Read the whole body, in the pieces it comes in; a compressed one is inflated.

        Raises:
            InvalidInput: it is not compressed as its head says.
            PayloadTooLarge: by its announced length, before anything is read, or once it has grown
                past the limit.
            Cancelled: the client left before the body was complete.
        """
        pieces = await self._received(request, receive)
        if not request.encoding:
            return pieces
        return await asyncio.to_thread(inflate, pieces, request.encoding, self._max_bytes)

    async def _received(self, request: Request, receive: Receive) -> list[bytes]:
        self._check_size(int(request.content_length or 0))
        size = 0
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Cancelled("the client left before its request was complete")
            piece: bytes = message["body"]
            pieces.append(piece)
            size += len(piece)
            self._check_size(size)
            if not message["more_body"]:
                request.is_read = True
                return pieces

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"the body is larger than the limit of {self._max_bytes} bytes (max_request_bytes)"
            )


async def refuse_body(
    error: PayloadTooLarge, request: Request, receive: Receive, send: Send
) -> None:
    """Answer, then read on for a moment: closing on unread bytes would reset the connection, and
    a client that is still writing would find that instead of the answer.
    """
    request_id = request.id or new_request_id()
    body = error_body(error, request_id)
    headers = [
        *error_headers(error, request_id),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": STATUS[error.code], "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    swallowed = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SWALLOW_S):
            while swallowed < _SWALLOW_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message["more_body"]:
                    break
                swallowed += len(message["body"])
    await send({"type": "http.response.body", "body": b""})
