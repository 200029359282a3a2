"""Listens for HTTP and lets go of its connections in order.

uvicorn's protocol class does the HTTP; its `Server` is not used, because it owns the signals and
looks ten times a second whether it should stop.
"""

import asyncio
import email.utils
import errno
import socket
import time
from typing import Any, cast

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from snoozeml.fronts.addresses import cannot_listen, resolve, written
from snoozeml.fronts.http.connection import Connection
from snoozeml.fronts.http.crowd import Crowd
from snoozeml.fronts.limits import ClientLimits
from snoozeml.fronts.tls import TlsFiles

_BACKLOG = 2048
_GRACE_S = 0.2
_HANDSHAKE_S = 10.0  # for a client that has connected and says nothing, or little
_GOODBYE_S = 1.0  # how long a client may take to say goodbye too, once its connection closes


class _State(ServerState):
    """What uvicorn's connections share, with a `Date` that is made when it is needed."""

    def __init__(self) -> None:
        self._date_s = 0
        self._headers: list[tuple[bytes, bytes]] = []
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        now_s = int(time.time())
        if now_s != self._date_s:
            self._date_s = now_s
            self._headers = [(b"date", email.utils.formatdate(now_s, usegmt=True).encode())]
        return self._headers

    @default_headers.setter
    def default_headers(self, value: object) -> None:
        """uvicorn assigns it once; the date is ours."""


def bind(host: str, port: int) -> socket.socket:
    """Reserve the address to serve on.

    Args:
        host: a name or an address; where a name has both, IPv4 is taken.
        port: 0 takes a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family, address = resolve(host, port)
    try:
        return socket.create_server((address, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        failure = cannot_listen(host, port, error)
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            hint = "--port takes another port, 0 a free one"
            failure = OSError(failure.errno, f"{failure.strerror} ({hint})")
        raise failure from error


def address_of(listener: socket.socket) -> str:
    """`host:port` as a URL writes it."""
    return written(*listener.getsockname()[:2])


class HttpServer:
    """Answers on one socket.

    Args:
        tls: the certificate to show; None: HTTP without TLS.
    """

    def __init__(self, app: ASGIApp, limits: ClientLimits, tls: TlsFiles | None) -> None:
        self._tls = tls
        self._config = Config(
            app,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=limits.keep_alive_s,  # type: ignore[arg-type]  # a timer's delay
        )
        self._config.load()
        self._state = _State()
        self._crowd = Crowd(limits, cast(set[Connection], self._state.connections))
        self._closed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def listen(self, listener: socket.socket) -> None:
        """Accept connections on a bound socket; it is closed with the server."""
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, sock=listener, backlog=_BACKLOG, **self._tls_arguments()
        )

    def _tls_arguments(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {
            "ssl": self._tls.context,
            "ssl_handshake_timeout": _HANDSHAKE_S,
            "ssl_shutdown_timeout": _GOODBYE_S,
        }

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Close idle connections after a moment, and the others once their answer is written.

        Cancelling this leaves connections open; `abort` cuts them.
        """
        if self._state.connections:
            # A request may be on its way on a connection that looks idle. It gets an answer, even
            # if that is a refusal, where closing now would reset it.
            await asyncio.sleep(_GRACE_S)
        self.stop_listening()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.connections:
            self._closed.clear()
            await self._closed.wait()

    async def abort(self) -> None:
        for connection in list(self._state.connections):
            connection.transport.abort()

    def _connection(self) -> Connection:
        return Connection(
            self._note_closed, self._crowd, config=self._config, server_state=self._state
        )

    def _note_closed(self) -> None:
        if not self._state.connections:
            self._closed.set()
