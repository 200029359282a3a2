"""Calls of every kind served by grpcio, on its asyncio server."""

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final, NoReturn

# Our forks only execute another program. Where grpcio prepares for more, it closes and opens
# descriptors in the child and starts threads there, which talk to the clients of the daemon: beside
# streams, 17 of 528 children lost their standard input, and a client was sent nonsense. Without,
# none of 546. grpcio reads this once, when it is imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import grpc
import grpc.aio
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from snoozeml.errors import RequestTimeout
from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.calls import Call, Failure, Streaming, Unary
from snoozeml.fronts.grpc.hanging_up import hang_up
from snoozeml.fronts.grpc.limits import CALLS_AT_ONCE, METADATA_BYTES, milliseconds
from snoozeml.fronts.grpc.status import failure_of
from snoozeml.fronts.limits import ClientLimits
from snoozeml.fronts.tls import TlsFiles
from snoozeml.wire.proto import health_pb2, oip_pb2, pool, snoozeml_pb2

# A client that leaves while its call ends is no error of ours.
logging.getLogger("grpc._cython.cygrpc").addFilter(
    lambda record: not record.getMessage().startswith("ExecuteBatchError raised in core")
)

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_NO_MESSAGE: Final = Failure(13, "Missing request message.", ())  # as pygrpc-native says it
_PINGS_MS: Final = 10_000
"""How often a client may ping; keepalive in earnest pings less often."""

_NOT_BEGUN: Final = 16 * 1024
"""Calls of all clients that have come and that the loop has not taken up yet."""

_TOO_SLOW: Final = (
    "the message did not come to an end in the time that the largest may take "
    "(transfer_timeout_secs, max_request_bytes, min_transfer_rate)"
)
_FOR_EVER_S: Final = 24 * 3600.0

_SERVICES: Final = tuple(
    service.full_name
    for module in (reflection_pb2, snoozeml_pb2, oip_pb2, health_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)
pool.Default().AddSerializedFile(reflection_pb2.DESCRIPTOR.serialized_pb)  # the others are there


class GrpcioServer:
    """See `servers.GrpcServer`.

    Args:
        address: numeric, with a port, of which 0 takes a free one; or `unix-abstract:` and a name.
        tls: the certificate to show; None: no TLS.

    Raises:
        OSError: the address cannot be had.
    """

    def __init__(self, address: str, limits: ClientLimits, tls: TlsFiles | None = None) -> None:
        self._limits = limits
        self._server = grpc.aio.server(options=_options(limits))
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
        self._server.add_generic_rpc_handlers([_Methods(app, self._limits)])
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

    def __init__(self, app: GrpcApp, limits: ClientLimits) -> None:
        self._app = app
        self._limits = limits

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
        call = _call(context)
        try:
            async with asyncio.timeout(self._limits.transfer_s(self._limits.request_bytes)):
                body = await context.read()
        except TimeoutError:
            await _abort(context, failure_of(RequestTimeout(_TOO_SLOW), call))
        if body is grpc.aio.EOF:
            await _abort(context, _NO_MESSAGE)
        outcome = await self._app.answer(handler, call, body)
        del body  # what `abort` raises would keep it, in a circle
        if isinstance(outcome, Failure):
            await _abort(context, outcome)
        context.set_trailing_metadata(tuple(outcome.trailing))
        await self._write(context, outcome.body)

    async def _stream(
        self, handler: Streaming, messages: AsyncIterator[bytes], context: Any
    ) -> None:
        call = _call(context)
        try:
            await handler(call, messages, partial(self._write, context))
        except Exception as error:  # whatever it is, the client must hear of it
            await _abort(context, failure_of(error, call))

    async def _write(self, context: Any, message: bytes) -> None:
        with contextlib.suppress(grpc.aio.InternalError):  # as if it came before the client left
            try:
                async with asyncio.timeout(self._limits.transfer_s(len(message))):
                    await context.write(message)
            except TimeoutError:
                # However the call were ended, grpcio would keep the message until it is read.
                hang_up(context.peer())
                await asyncio.get_running_loop().create_future()  # until grpcio has noticed


def _options(limits: ClientLimits) -> list[tuple[str, int]]:
    """Limits as grpcio knows them; those that are not named here are right as they are."""
    keep_alive_ms, pong_ms = map(milliseconds, (limits.keep_alive_s, limits.transfer_timeout_s))
    return [
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_send_message_length", -1),  # the handlers see to that
        ("grpc.so_reuseport", 0),  # an address that is in use is an error
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_concurrent_streams", CALLS_AT_ONCE),
        # Beyond that, honest clients are refused by chance, and in no words.
        ("grpc.server.max_pending_requests", _NOT_BEGUN),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _NOT_BEGUN),
        # One limit, not a range within which chance decides.
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.server_handshake_timeout_ms", milliseconds(limits.header_timeout_s)),
        ("grpc.max_connection_idle_ms", keep_alive_ms),
        # Clients that have gone without a word are found out while they have calls.
        ("grpc.keepalive_time_ms", keep_alive_ms),
        ("grpc.keepalive_timeout_ms", pong_ms),
        ("grpc.http2.ping_timeout_ms", pong_ms),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", _PINGS_MS),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


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
