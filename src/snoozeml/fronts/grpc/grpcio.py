"""Calls of every kind served by grpcio, on its asyncio server."""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final, NoReturn

# Our forks only execute another program, for which grpcio need not prepare. Where it did, a fresh
# child's standard input was now and then closed before its job could be written to it; it has not
# been seen since. grpcio reads this once, when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio
from grpc_reflection.v1alpha.reflection import SERVICE_NAME, enable_server_reflection

from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.calls import Call, Failure, Streaming, Unary
from snoozeml.fronts.grpc.status import failure_of
from snoozeml.fronts.tls import TlsFiles
from snoozeml.wire.proto import health_pb2, oip_pb2, pool, snoozeml_pb2

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_NO_MESSAGE: Final = Failure(13, "Missing request message.", ())  # as pygrpc-native says it
_STALLED_S: Final = 20.0
"""How long a stream's client may leave an answer unread."""

_FOR_EVER_S: Final = 24 * 3600.0

_SERVICES: Final = (
    SERVICE_NAME,
    *(
        service.full_name
        for module in (snoozeml_pb2, oip_pb2, health_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    ),
)


class GrpcioServer:
    """See `servers.GrpcServer`.

    Args:
        address: numeric, with a port, of which 0 takes a free one; or `unix:` and a path.
        tls: the certificate to show; None: no TLS.
        on_stalled: called with the address of a client that does not read what a stream sends.

    Raises:
        OSError: the address cannot be had.
    """

    def __init__(
        self,
        address: str,
        max_request_bytes: int,
        tls: TlsFiles | None = None,
        on_stalled: Callable[[str], None] = lambda peer: None,
    ) -> None:
        self._on_stalled = on_stalled
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", max_request_bytes),
                ("grpc.max_send_message_length", -1),  # the handlers see to that
                ("grpc.so_reuseport", 0),  # an address that is in use is an error
            ],
        )
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, _credentials(tls))
        except RuntimeError:
            raise OSError(errno.EADDRINUSE, "the address is in use") from None
        self.address: Final = f"{address.rpartition(':')[0]}:{port}"

    async def start(self, app: GrpcApp) -> None:
        """Accept connections."""
        self._server.add_generic_rpc_handlers([_Methods(app, self._on_stalled)])
        enable_server_reflection(_SERVICES, self._server, pool.Default())
        await self._server.start()

    async def close(self) -> None:
        """Answer what has been accepted, then close the connections.

        Cancelling this leaves them open; `abort` cuts them.
        """
        await self._server.stop(_FOR_EVER_S)

    async def abort(self) -> None:
        await self._server.stop(None)


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """An application as grpcio asks for it."""

    def __init__(self, app: GrpcApp, on_stalled: Callable[[str], None]) -> None:
        self._app = app
        self._on_stalled = on_stalled

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        path: str = handler_call_details.method
        if (unary := self._app.unary.get(path)) is not None:
            # As a stream: where a client closes its side without a message, grpcio never ends a
            # call that it takes to be unary.
            return grpc.stream_stream_rpc_method_handler(partial(self._unary, unary))
        if (streaming := self._app.streaming.get(path)) is not None:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, streaming))
        return None

    async def _unary(self, handler: Unary, _messages: Any, context: Any) -> None:
        call, body = _call(context), await context.read()
        if body is grpc.aio.EOF:
            await _abort(context, _NO_MESSAGE)
        outcome = await self._app.answer(handler, call, body)
        if isinstance(outcome, Failure):
            await _abort(context, outcome)
        context.set_trailing_metadata(tuple(outcome.trailing))
        await _write(context, outcome.body)

    async def _stream(
        self, handler: Streaming, messages: AsyncIterator[bytes], context: Any
    ) -> None:
        call, serving = _call(context), asyncio.current_task()
        assert serving is not None

        async def write(message: bytes) -> None:
            try:
                async with asyncio.timeout(_STALLED_S):
                    await _write(context, message)
            except TimeoutError:
                # To end the call in order would mean to wait for the client, too.
                serving.cancel()
                self._on_stalled(context.peer())

        try:
            await handler(call, messages, write)
        except Exception as error:  # whatever it is, the client must hear of it
            await _abort(context, failure_of(error, call))


async def _write(context: Any, message: bytes) -> None:
    # The client has left; the cancellation that tells so is on its way.
    with contextlib.suppress(grpc.aio.InternalError):
        await context.write(message)


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Credentials that are looked up at each connection."""

    def current() -> grpc.ServerCertificateConfiguration:
        identity = tls.current()
        pair = (identity.key, identity.certificate)
        return grpc.ssl_server_certificate_configuration([pair], identity.client_ca)

    return grpc.dynamic_ssl_server_credentials(current(), current, tls.asks_for_certificates)


def _call(context: Any) -> Call:
    left_s = context.time_remaining()
    deadline = None if left_s is None else time.monotonic() + left_s
    return Call(context.invocation_metadata(), deadline)


async def _abort(context: Any, failure: Failure) -> NoReturn:
    """End a call; raises what grpcio wants to be raised for that."""
    await context.abort(_CODES[failure.code], failure.message, tuple(failure.trailing))
    raise AssertionError("abort always raises")
