"""Bodies of requests: read within their limit, or refused."""

import asyncio

from starlette.types import Receive

from snoozeml.errors import Cancelled, PayloadTooLarge, UnsupportedMediaType
from snoozeml.fronts.http.compression import ENCODINGS, inflate
from snoozeml.fronts.http.request import Request
from snoozeml.lifecycle.trimming import Trimmer


class BodyReader:
    """Reads whole bodies.

    Args:
        max_bytes: what a body may have, compressed or not.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._trimmer = Trimmer()

    async def read(self, request: Request, receive: Receive) -> list[bytes]:
        """Read the whole body, in the pieces it comes in; a compressed one is inflated.

        Raises:
            InvalidInput: it is not compressed as its head says.
            UnsupportedMediaType: it is compressed in a way that we do not know.
            PayloadTooLarge: by its announced length, before anything is read, or once it has grown
                past the limit.
            Cancelled: the client left before the body was complete.
        """
        if not request.encoding:
            return await self._received(request, receive)
        _check_encoding(request.encoding)
        pieces = await self._received(request, receive)
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
            self._trimmer.large_passes()

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"the body is larger than the limit of {self._max_bytes} bytes (max_request_bytes)"
            )


def _check_encoding(encoding: bytes) -> None:
    if encoding not in ENCODINGS:
        given = encoding.decode("latin-1")
        raise UnsupportedMediaType(f"send content-encoding gzip or deflate or none, not {given}")
