"""Frames from the daemon, as many as have come."""

import select
import socket
import time
from typing import Final

from snoozeml.core import heap
from snoozeml.wire.frames import Frame, FrameParser

_CHUNK_BYTES: Final = 256 * 1024  # more than a Unix socket holds by default


class FrameReader:
    """Reads a blocking stream socket whose descriptor is below 1024, as `select` needs it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock: Final = sock
        self._parser: Final = FrameParser()
        self._chunk: Final = memoryview(bytearray(_CHUNK_BYTES))
        self._trim_at = 0.0  # monotonic; 0: there is nothing to give back

    def trim_later(self) -> None:
        """Have memory given back to the system when nothing large has passed for a while."""
        self._trim_at = time.monotonic() + heap.QUIET_S

    def read(self, wait_s: float | None) -> list[Frame] | None:
        """Take what the socket holds; wait for something if it holds nothing.

        Args:
            wait_s: how long to wait at most; None: until something comes.

        Returns:
            The frames that are complete, maybe none; None at end-of-file or a broken connection.
        """
        if self._trim_at and wait_s is None:
            self._trim_when_quiet()
        # `poll` counts milliseconds; waits for company are often shorter than one.
        if wait_s and not select.select([self._sock], [], [], wait_s)[0]:
            return []
        try:
            received = self._sock.recv_into(
                self._chunk, 0, 0 if wait_s is None else socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return []
        except ConnectionResetError:
            return None
        if not received:
            return None
        frames = self._parser.feed(self._chunk[:received])
        if not frames:  # only a large one does not come in one piece
            self.trim_later()
        return frames

    def _trim_when_quiet(self) -> None:
        """Wait until it is time to give memory back, or until something comes."""
        left_s = self._trim_at - time.monotonic()
        if left_s <= 0 or not select.select([self._sock], [], [], left_s)[0]:
            self._trim_at = 0.0
            heap.trim()
