"""The daemon's end of the socket to one worker."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from snoozeml.wire.frames import Frame, FrameParser, Kind, header

# Below this size one copy is cheaper than handing the kernel a list of pieces.
_JOIN_BELOW_BYTES = 64 * 1024


class Channel(asyncio.Protocol):
    """Sends frames and reports those that arrive; knows nothing of what they mean.

    Args:
        on_frames: called with what one read completed, in order.
        on_lost: called once, when the worker's end is closed, by it or by us.
    """

    def __init__(
        self, on_frames: Callable[[list[Frame]], None], on_lost: Callable[[], None]
    ) -> None:
        self._on_frames = on_frames
        self._on_lost = on_lost
        self._parser = FrameParser()
        self._transport: asyncio.WriteTransport | None = None
        self._turn_written = False
        self._gathered: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        on_frames: Callable[[list[Frame]], None],
        on_lost: Callable[[], None],
    ) -> "Channel":
        """Take over a connected socket; it is closed with the channel."""
        _, channel = await asyncio.get_running_loop().create_unix_connection(
            lambda: cls(on_frames, on_lost), sock=sock
        )
        return channel

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
        size = sum(map(len, body))
        head = header(kind, size, codec=codec, count=count, id=id, t0=t0, t1=t1)
        if self._turn_written:
            self._gathered += (head, *body)
            return
        # The first frame of a turn leaves at once: a lone request must not wait for company here.
        # Those that come together with it follow in one piece.
        self._turn_written = True
        self._loop.call_soon(self._end_turn)
        self._write((head, *body), size)

    def send_struct(self, kind: Kind, body: msgspec.Struct) -> None:
        self.send(kind, (msgspec.json.encode(body),))

    def close(self) -> None:
        self._end_turn()
        if self._transport is not None:
            self._transport.close()

    def _end_turn(self) -> None:
        self._turn_written = False
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._write(gathered, sum(map(len, gathered)))

    def _write(self, pieces: Sequence[bytes], size_bytes: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if size_bytes < _JOIN_BELOW_BYTES:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's has other bases

    def data_received(self, data: bytes) -> None:
        frames = self._parser.feed(data)
        if frames:
            self._on_frames(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost()
