"""The daemon's end of the socket to one worker."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec

from snoozeml.lifecycle.taking_over import taken_over
from snoozeml.lifecycle.trimming import Trimmer
from snoozeml.wire.frames import Frame, FrameParser, FrameTooLarge, Kind, header

# Below this size one copy is cheaper than handing the kernel a list of pieces.
_JOIN_BELOW_BYTES = 64 * 1024


LARGEST_FRAME_BYTES: Final = 2**32

_log = logging.getLogger("snoozeml.worker")


class Channel(asyncio.Protocol):
    """Sends frames and reports those that arrive; knows nothing of what they mean.

    Args:
        on_frames: called with what one read completed, in order.
        on_lost: called once, when the worker's end is closed, by it or by us.
        largest_bytes: a worker that sends a larger frame is not listened to any more.
    """

    def __init__(
        self,
        on_frames: Callable[[list[Frame]], None],
        on_lost: Callable[[], None],
        largest_bytes: int,
    ) -> None:
        self._on_frames = on_frames
        self._on_lost = on_lost
        self._parser = FrameParser(largest_bytes)
        self._transport: asyncio.WriteTransport | None = None
        self._gathered: list[bytes] = []
        self._trimmer = Trimmer()
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        on_frames: Callable[[list[Frame]], None],
        on_lost: Callable[[], None],
        largest_bytes: int = LARGEST_FRAME_BYTES,
    ) -> "Channel":
        """Take over a connected socket; it is closed with the channel."""
        loop = asyncio.get_running_loop()
        return await taken_over(
            loop.create_unix_connection(lambda: cls(on_frames, on_lost, largest_bytes), sock=sock)
        )

    def send(
        self,
        kind: Kind,
        body: Sequence[bytes] = (),
        *,
        codec: int = 0,
        count: int = 0,
        id: int = 0,
        t0: float = 0.0,
        t1: float = 0.0,
    ) -> None:
        """Send one frame; on a channel that is lost already this does nothing."""
        if not self._gathered:
            self._loop.call_soon(self._end_turn)
        size = sum(map(len, body))
        self._gathered += (
            header(kind, size, codec, count, id, t0, t1),
            *body,
        )

    def send_struct(self, kind: Kind, body: msgspec.Struct) -> None:
        self.send(kind, (msgspec.json.encode(body),))

    def close(self) -> None:
        self._end_turn()
        if self._transport is not None:
            self._transport.close()

    def _end_turn(self) -> None:
        """Write what one turn of the loop has gathered, in one piece.

        The first frame would leave some microseconds earlier if it did not wait for the others, but
        the worker would wake for it alone, and run it alone.
        """
        pieces, self._gathered = self._gathered, []
        if not pieces or self._transport is None or self._transport.is_closing():
            return
        if sum(map(len, pieces)) < _JOIN_BELOW_BYTES:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)
            self._trimmer.large_passes()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's has other bases

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._parser.feed(data)
        except FrameTooLarge as error:
            _log.error("a worker's answer is too large: %s", error)
            self.close()
            return
        if frames:
            self._on_frames(frames)
        else:  # only a large one does not come in one piece
            self._trimmer.large_passes()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost()
