"""The daemon's end of the socket to one worker."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from snoozeml.wire.frames import Frame, FrameParser, Kind, header
from snoozeml.wire.transport import CoalescingTransport


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
        self._transport: CoalescingTransport | None = None

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
        if self._transport is None or self._transport.is_closing():
            return
        size = sum(map(len, body))
        self._transport.write(header(kind, size, codec=codec, count=count, id=id, t0=t0, t1=t1))
        for piece in body:
            self._transport.write(piece)

    def send_struct(self, kind: Kind, body: msgspec.Struct) -> None:
        self.send(kind, (msgspec.json.encode(body),))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have other bases, hence the cast.
        self._transport = CoalescingTransport(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        frames = self._parser.feed(data)
        if frames:
            self._on_frames(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost()
