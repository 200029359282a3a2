"""grpcio behind the scenes, for the calls that pygrpc-native passes on.

It takes 17 MB, so it is started when the first of them comes. Until then there is only a socket;
from then on bytes are carried between the two. There is one connection for each of a client's.

The sockets' names are Linux's own, without files: a daemon that is killed leaves nothing behind.
Whoever can connect to them can connect to the port, too.
"""

import asyncio
import contextlib
import importlib
import math
import os
import secrets
import socket
from asyncio import StreamReader, StreamWriter
from typing import Final

from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.servers import GrpcServer
from snoozeml.fronts.limits import ClientLimits

_CHUNK_BYTES: Final = 256 * 1024


class Backstage:
    """A socket for pygrpc-native, and grpcio behind it once something has been passed on.

    Attributes:
        name: of the socket, as the system writes it: a zero byte comes first.
    """

    def __init__(self, app: GrpcApp, limits: ClientLimits) -> None:
        self._app = app
        # Of clients that leave without having read their answers we are not told; they look slow.
        # All are on this machine, where size takes no time.
        self._limits = limits._replace(bytes_per_s=math.inf)
        self._socket = _named_socket()
        self.name: Final = os.fsdecode(self._socket.getsockname())
        self._inner = f"snoozeml-{secrets.token_hex(8)}"
        self._starting = asyncio.Lock()
        self._listener: asyncio.Server | None = None
        self._server: GrpcServer | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        self._listener = await asyncio.start_unix_server(self._accept, sock=self._socket)

    async def close(self) -> None:
        """Return when every call has ended. Cancelling this leaves them; `abort` cuts them."""
        if self._server is not None:
            await self._server.close()
        self._leave()

    async def abort(self) -> None:
        if self._server is not None:
            await self._server.abort()
        self._leave()

    def _leave(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in list(self._carrying):
            task.cancel()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry bytes both ways until one side closes."""
        with contextlib.closing(writer), contextlib.suppress(OSError):
            await self._ensure_server()
            inner_reader, inner_writer = await self._connect()
            with contextlib.closing(inner_writer):
                ways = [
                    asyncio.create_task(_copy(reader, inner_writer)),
                    asyncio.create_task(_copy(inner_reader, writer)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        sock = _named_socket()  # so that grpcio can tell its clients apart
        await asyncio.get_running_loop().sock_connect(sock, f"\0{self._inner}")
        return await asyncio.open_unix_connection(sock=sock)

    async def _ensure_server(self) -> None:
        async with self._starting:
            if self._server is not None:
                return
            # Importing it takes a tenth of a second, for which the loop must not stand still.
            grpcio = await asyncio.to_thread(importlib.import_module, "snoozeml.fronts.grpc.grpcio")
            server: GrpcServer = grpcio.GrpcioServer(f"unix-abstract:{self._inner}", self._limits)
            await server.start(self._app)
            self._server = server


def _named_socket() -> socket.socket:
    """One with a name that the kernel has chosen; see unix(7), Autobind feature."""
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    sock.bind("")
    return sock


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with contextlib.suppress(OSError):  # whichever side has gone, the other one is told
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
