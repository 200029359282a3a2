"""grpcio behind the scenes, for the calls that pygrpc-native passes on.

It takes 17 MB, so it is started when the first of them comes. Until then there is only a socket;
from then on bytes are carried between the two. There is one connection for each of a client's.
"""

import asyncio
import contextlib
import importlib
import itertools
import socket
import tempfile
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from typing import Final

from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.servers import GrpcServer

_CHUNK_BYTES: Final = 256 * 1024


class Backstage:
    """A socket for pygrpc-native, and grpcio behind it once something has been passed on.

    Attributes:
        path: of the socket, in a folder that only this user may enter.
    """

    def __init__(self, app: GrpcApp, max_request_bytes: int) -> None:
        self._app = app
        self._max_request_bytes = max_request_bytes
        self._folder = tempfile.TemporaryDirectory(prefix="snoozeml-grpc-")
        self.path: Final = str(Path(self._folder.name, "front"))
        self._inner = str(Path(self._folder.name, "back"))
        self._starting = asyncio.Lock()
        self._listener: asyncio.Server | None = None
        self._server: GrpcServer | None = None
        self._carrying: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count()

    async def listen(self) -> None:
        self._listener = await asyncio.start_unix_server(self._accept, self.path)

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
        for task in list(self._carrying.values()):
            task.cancel()
        self._folder.cleanup()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        # The path that we connect from is what grpcio calls its client.
        path = str(Path(self._folder.name, str(next(self._numbers))))
        task = asyncio.get_running_loop().create_task(self._carry(path, reader, writer))
        self._carrying[f"unix:{path}"] = task
        task.add_done_callback(lambda _: self._forget(path))

    def _forget(self, path: str) -> None:
        del self._carrying[f"unix:{path}"]
        Path(path).unlink(missing_ok=True)

    def _cut(self, peer: str) -> None:
        """Close the connection of a client that does not read. Its calls would stay for ever:
        pygrpc-native does not tell of clients that leave meanwhile.
        """
        if peer in self._carrying:
            self._carrying[peer].cancel()

    async def _carry(self, path: str, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry bytes both ways until one side closes."""
        with contextlib.closing(writer), contextlib.suppress(OSError):
            await self._ensure_server()
            inner_reader, inner_writer = await self._connect_from(path)
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

    async def _connect_from(self, path: str) -> tuple[StreamReader, StreamWriter]:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        sock.bind(path)
        await asyncio.get_running_loop().sock_connect(sock, self._inner)
        return await asyncio.open_unix_connection(sock=sock)

    async def _ensure_server(self) -> None:
        async with self._starting:
            if self._server is not None:
                return
            # Importing it takes a tenth of a second, for which the loop must not stand still.
            grpcio = await asyncio.to_thread(importlib.import_module, "snoozeml.fronts.grpc.grpcio")
            server: GrpcServer = grpcio.GrpcioServer(
                f"unix:{self._inner}", self._max_request_bytes, on_stalled=self._cut
            )
            await server.start(self._app)
            self._server = server


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with contextlib.suppress(OSError):  # whichever side has gone, the other one is told
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
