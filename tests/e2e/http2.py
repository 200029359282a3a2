"""HTTP/2 in as few words as it takes to break its rules: RFC 9113 and, for headers, RFC 7541."""

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Self

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_BYTES: Final = 16 * 1024  # what every server takes

END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
ACK: Final = 0x1

MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_HEADER_LIST_SIZE: Final = 6


class Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def greeting(settings: Mapping[int, int] | None = None) -> bytes:
    """What every client says first."""
    pairs = (settings or {}).items()
    return _PREFACE + frame(Kind.SETTINGS, 0, 0, b"".join(struct.pack(">HI", *it) for it in pairs))


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def calling(stream: int, path: str, metadata: Mapping[str, str] | None = None) -> bytes:
    """The beginning of a call; it has no message yet."""
    block = b"".join(_literal(*pair) for pair in _request(path, metadata or {}))
    parts = [block[at : at + _FRAME_BYTES] for at in range(0, len(block), _FRAME_BYTES)]
    kinds = itertools.chain([Kind.HEADERS], itertools.repeat(Kind.CONTINUATION))
    flags = [0] * (len(parts) - 1) + [END_HEADERS]
    return b"".join(map(frame, kinds, flags, itertools.repeat(stream), parts))


def message(stream: int, body: bytes) -> bytes:
    """A call's last message."""
    data = b"\0" + struct.pack(">I", len(body)) + body
    parts = [data[at : at + _FRAME_BYTES] for at in range(0, len(data), _FRAME_BYTES)]
    flags = [0] * (len(parts) - 1) + [END_STREAM]
    return b"".join(map(frame, itertools.repeat(Kind.DATA), flags, itertools.repeat(stream), parts))


class Http2:
    """One connection, which answers nothing that it is not told to answer."""

    def __init__(self, address: str, *, timeout_s: float = 20.0) -> None:
        host, _, port = address.rpartition(":")
        self._sock: Final = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def write(self, data: bytes) -> None:
        self._sock.sendall(data)

    def send(self, kind: Kind, flags: int = 0, stream: int = 0, payload: bytes = b"") -> None:
        self.write(frame(kind, flags, stream, payload))

    def frames(self) -> Iterator[Frame]:
        """What comes, until the server closes the connection.

        Raises:
            TimeoutError: nothing has come for a while.
        """
        with contextlib.suppress(ConnectionError):
            while head := self._receive(9):
                size = int.from_bytes(head[:3], "big")
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                yield Frame(kind, flags, stream, self._receive(size))

    def _receive(self, size: int) -> bytes:
        """So many bytes; none at all where the connection ends before."""
        while len(self._received) < size:
            if not (chunk := self._sock.recv(2**16)):
                return b""
            self._received += chunk
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def first(self, kind: Kind) -> Frame:
        """The next frame of this kind.

        Raises:
            AssertionError: the connection ends without it.
        """
        seen = []
        for frame in self.frames():
            if frame.kind == kind:
                return frame
            seen.append(frame)
        raise AssertionError(f"no {kind.name}, but {seen}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()


def settings_of(frame: Frame) -> dict[int, int]:
    """The settings that a frame tells, by their numbers."""
    return dict(struct.iter_unpack(">HI", frame.payload))


def _request(path: str, metadata: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x"}.items()
    yield from {"te": "trailers", "content-type": "application/grpc"}.items()
    yield from metadata.items()


def _literal(name: str, value: str) -> bytes:
    """A header field that is not to be remembered, uncompressed."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    length, octets = len(text), bytearray()
    if length < 127:
        return bytes([length]) + text.encode()
    octets.append(127)
    length -= 127
    while length > 127:
        octets.append(128 | length & 127)
        length >>= 7
    octets.append(length)
    return bytes(octets) + text.encode()
