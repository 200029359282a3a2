"""Thousands of gRPC calls that go wrong in every way that there is."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from e2e import http2
from e2e.grpc_client import INFER, INFER_STREAM, request

_CONNECTIONS: Final = 8
_TIMEOUT_S: Final = 20.0

Channel = Any  # grpcio has no types
Broken = Sequence[tuple[str, bytes]]


class Mischief:
    """Calls to one address.

    Args:
        good: a message of `Infer` that is answered.
        broken: methods, and messages that they refuse as INVALID_ARGUMENT.
    """

    def __init__(self, address: str, good: bytes, broken: Broken) -> None:
        self._address = address
        self._good = good
        self._broken = itertools.cycle(broken)
        self._kinds: Sequence[Callable[[Channel], Awaitable[None]]] = (
            self._broken_message,
            self._unknown_model,
            self._cancelled_call,
            self._reset_stream,
            self._half_closed_stream,
            self._half_closed_call,
            self._unread_stream,
            self._broken_connection,
        )

    async def make(self, calls: int) -> None:
        """Make so many calls, of each kind the same number, a few at a time."""
        turns = iter(range(calls))

        async def client() -> None:
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(self._address, options) as channel:
                for turn in turns:
                    await self._kinds[turn % len(self._kinds)](channel)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CONNECTIONS):
                tasks.create_task(client())

    async def _broken_message(self, channel: Channel) -> None:
        method, body = next(self._broken)
        await self._refused(channel, method, body, grpc.StatusCode.INVALID_ARGUMENT)

    async def _unknown_model(self, channel: Channel) -> None:
        await self._refused(channel, INFER, request("nobody"), grpc.StatusCode.NOT_FOUND)

    async def _refused(
        self, channel: Channel, method: str, body: bytes, code: grpc.StatusCode
    ) -> None:
        call = channel.unary_unary(method)(body, timeout=_TIMEOUT_S)
        assert await call.code() is code, await call.details()

    async def _cancelled_call(self, channel: Channel) -> None:
        call = channel.unary_unary(INFER)(self._good, timeout=_TIMEOUT_S)
        await asyncio.sleep(0.001)
        call.cancel()

    async def _reset_stream(self, channel: Channel) -> None:
        messages = itertools.repeat(self._good, 20)
        call = channel.stream_stream(INFER_STREAM)(messages, timeout=_TIMEOUT_S)
        await call.read()
        call.cancel()

    async def _half_closed_stream(self, channel: Channel) -> None:
        call = channel.stream_stream(INFER_STREAM)(iter([]), timeout=_TIMEOUT_S)
        assert await call.read() is grpc.aio.EOF

    async def _half_closed_call(self, channel: Channel) -> None:
        with contextlib.suppress(grpc.RpcError):  # it wants one message and gets none
            await channel.stream_stream(INFER)(iter([]), timeout=_TIMEOUT_S).read()

    async def _unread_stream(self, _: Channel) -> None:
        """The client makes no room for an answer, and leaves."""
        greeting = http2.greeting({http2.INITIAL_WINDOW_SIZE: 0})
        await self._raw(greeting + http2.calling(1, INFER_STREAM) + http2.message(1, self._good))

    async def _broken_connection(self, _: Channel) -> None:
        await self._raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGARBAGE")

    async def _raw(self, sent: bytes) -> None:
        host, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            writer.write(sent)
            await reader.read(100)
