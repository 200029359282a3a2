"""HTTP/2 in as many words as it takes to break its rules; see RFC 9113 and, for headers, RFC 7541."""

import contextlib
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


class Http2:
    """One connection, which answers nothing that it is not told to answer."""

    def __init__(self, address: str, *, timeout_s: float = 20.0) -> None:
        host, _, port = address.rpartition(":")
        self._sock: Final = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def greet(self, settings: Mapping[int, int] | None = None) -> None:
        """Say what every client says first."""
        pairs = (settings or {}).items()
        payload = b"".join(struct.pack(">HI", number, value) for number, value in pairs)
        self._sock.sendall(_PREFACE + _framed(Kind.SETTINGS, 0, 0, payload))

    def send(self, kind: Kind, flags: int = 0, stream: int = 0, payload: bytes = b"") -> None:
        self._sock.sendall(_framed(kind, flags, stream, payload))

    def call(self, stream: int, path: str, metadata: Mapping[str, str] | None = None) -> None:
        """Begin a call; it has no message yet."""
        block = b"".join(_literal(*pair) for pair in _request(path, metadata or {}))
        parts = [block[at : at + _FRAME_BYTES] for at in range(0, len(block), _FRAME_BYTES)]
        for number, part in enumerate(parts):
            kind = Kind.CONTINUATION if number else Kind.HEADERS
            self.send(kind, END_HEADERS if number == len(parts) - 1 else 0, stream, part)

    def message(self, stream: int, body: bytes) -> None:
        """Send a call's last message, which the server must have room for."""
        data = b"\0" + struct.pack(">I", len(body)) + body
        for at in range(0, len(data), _FRAME_BYTES):
            part = data[at : at + _FRAME_BYTES]
            is_last = at + len(part) == len(data)
            self.send(Kind.DATA, END_STREAM if is_last else 0, stream, part)

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


def _framed(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


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
