"""Frames between the daemon and a worker: a fixed header, then an opaque body.

    offset  size  field     daemon → worker             worker → daemon
    0       4     length    bytes after this field      the same
    4       1     kind      `Kind`                      `Kind`
    5       1     codec     dialect of the body         runs since the last frame
    6       2     count     backlog in the daemon       rows in the batch
    8       8     id        request                     request
    16      8     t0        arrival, monotonic s        queue time, s
    24      8     t1        deadline, monotonic s       run time, s
    32      …     body

Little-endian. Both ends run on one machine, so they share the monotonic clock. Bodies that are ours
(START, READY, LOAD_FAILED, ERROR, NOTICE) are JSON of the structs in `core.plan`. USED says that
the model has proven used, and that its weights might be packed; PACK, that there is room for that.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

_HEADER: Final = Struct("<IBBHQdd")
HEADER_BYTES: Final = _HEADER.size
_LENGTH_BYTES: Final = 4
_COUNT_MAX: Final = 0xFFFF


class Kind(IntEnum):
    START = 1
    INFER = 2
    CANCEL = 3
    STOP = 4
    PACK = 5
    READY = 16
    LOAD_FAILED = 17
    RESULT = 18
    ERROR = 19
    NOTICE = 20
    USED = 21


class Frame(msgspec.Struct, frozen=True, gc=False):
    kind: int
    codec: int
    count: int
    id: int
    t0: float
    t1: float
    body: bytes


def header(
    kind: int,
    body_bytes: int,
    codec: int = 0,
    count: int = 0,
    id: int = 0,
    t0: float = 0.0,
    t1: float = 0.0,
) -> bytes:
    """The header of a frame whose body, of `body_bytes` bytes, the caller sends after it."""
    return _HEADER.pack(
        HEADER_BYTES - _LENGTH_BYTES + body_bytes,
        kind,
        codec,
        count if count < _COUNT_MAX else _COUNT_MAX,  # noqa: FURB136  a call takes as long as the rest
        id,
        t0,
        t1,
    )


class FrameTooLarge(Exception):
    """The other side announces more than it may send."""


class FrameParser:
    """Cuts a byte stream into frames, however the stream was chopped.

    A large body is collected in the pieces it comes in, and copied once, when it is complete.
    """

    def __init__(self, largest_bytes: int = 2**32) -> None:
        self._largest_bytes = largest_bytes
        self._rest = b""  # of a header
        self._head: tuple[int, int, int, int, float, float] = (0, 0, 0, 0, 0.0, 0.0)
        self._pieces: list[bytes] = []
        self._missing = 0  # bytes of the body that `_head` belongs to

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Return the frames that this piece of the stream completes; raises FrameTooLarge."""
        if self._missing:
            return self._feed_body(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        frames: list[Frame] = []
        at, size, view = 0, len(data), memoryview(data)
        while size - at >= HEADER_BYTES:
            length, kind, codec, count, id, t0, t1 = _HEADER.unpack_from(data, at)
            start, at = at + HEADER_BYTES, at + _LENGTH_BYTES + length
            if at > size:
                if length > self._largest_bytes:
                    raise FrameTooLarge(
                        f"{length} bytes, where no more than {self._largest_bytes} are taken"
                    )
                self._head = (kind, codec, count, id, t0, t1)
                self._pieces.append(bytes(view[start:]))
                self._missing = at - size
                return frames
            frames.append(Frame(kind, codec, count, id, t0, t1, bytes(view[start:at])))
        self._rest = bytes(view[at:])
        return frames

    def _feed_body(self, data: bytes | memoryview) -> list[Frame]:
        missing = self._missing
        self._pieces.append(bytes(data[:missing]))  # of bytes, and all of them, this is no copy
        self._missing -= len(self._pieces[-1])
        if self._missing:
            return []
        frame = Frame(*self._head, b"".join(self._pieces))
        self._pieces.clear()
        return [frame, *self.feed(memoryview(data)[missing:])]
