"""An HTTP/1.1 client that sends exactly the bytes it is told to, blocking or for many at once.

It is strict: an answer without Content-Length is an error, since every answer of the daemon is
whole before it is sent.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

Address = tuple[str, int]
Tensors = Sequence[Mapping[str, Any]]

_TIMEOUT_S = 30.0


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes

    def json(self) -> Any:
        assert self.headers["content-type"].startswith("application/json"), self
        return json.loads(self.body)

    def outputs(self) -> dict[str, Any]:
        """Data of an infer response, by output name."""
        assert self.status == 200, self
        return {output["name"]: output["data"] for output in self.json()["outputs"]}


def tensor(name: str, shape: Sequence[int], data: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "data": data, **more}


def infer_body(*inputs: Mapping[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs, **more}).encode()


def request_bytes(
    method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """A whole request; with a body it is JSON of a stated length unless `headers` say otherwise."""
    fields = {"Host": "snooze.test"}
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    fields |= headers or {}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    status_line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (li.partition(":") for li in lines)
    }
    return int(status_line.split(" ", 2)[1]), headers


def _body_bytes(status: int, headers: Mapping[str, str], method: str) -> int:
    if method == "HEAD" or status < 200 or status == 204:
        return 0
    return int(headers["content-length"])


class Connection:
    """A blocking connection, for tests that care about the bytes on it."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(address, _TIMEOUT_S)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        self._reader = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def reply(self, method: str = "GET") -> Reply:
        """Read the next answer; `method` is what it answers, for HEAD has no body."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._reader.readline()
            if not line:
                raise ConnectionResetError(f"closed after {head!r}")
            head += line
        status, headers = _parse_head(head)
        return Reply(status, headers, self._reader.read(_body_bytes(status, headers, method)))

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        self.send(request_bytes(method, target, body, headers))
        return self.reply(method)

    def ended(self) -> bool:
        """Whether the other side closes the connection with nothing more to say; waits for it."""
        try:
            return self._reader.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class AsyncConnection:
    """A keep-alive connection for tests that hold many at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: Address) -> Self:
        return cls(*await asyncio.open_connection(*address))

    async def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        self._writer.write(request_bytes(method, target, body, headers))
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, fields = _parse_head(head)
        body_bytes = _body_bytes(status, fields, method)
        return Reply(status, fields, await self._reader.readexactly(body_bytes))

    def close(self) -> None:
        self._writer.close()
