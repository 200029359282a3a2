"""Clients that send one byte a second, and honest ones beside them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

from e2e.client import Address, AsyncConnection, request_bytes

_HONEST_CLIENTS: Final = 10
_REQUESTS_PER_S: Final = 200


@contextlib.asynccontextmanager
async def trickling(address: Address, target: str, clients: int) -> AsyncIterator[None]:
    """So many clients, every other one in the middle of a body and the rest of a head.

    Raises:
        AssertionError: one of them was done within the block, because it was cut off.
    """
    async with asyncio.TaskGroup() as tasks:
        slow = [tasks.create_task(_trickle(address, target, n / clients)) for n in range(clients)]
        await asyncio.sleep(2)
        yield
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()


async def _trickle(address: Address, target: str, phase_s: float) -> None:
    _, writer = await asyncio.open_connection(*address)
    with contextlib.closing(writer):
        if phase_s * 1000 % 2 >= 1:
            writer.write(request_bytes("POST", target, b"", {"Content-Length": "10000"}))
        await asyncio.sleep(phase_s)
        for byte in request_bytes("GET", "/v1/models", None, {"X": "y" * 1000}):
            writer.write(bytes([byte]))
            await asyncio.sleep(1)


async def latencies_s(address: Address, target: str, body: bytes, seconds: float) -> list[float]:
    """What each request takes for ten clients who make 200 a second together."""
    taken: list[float] = []
    pause_s = _HONEST_CLIENTS / _REQUESTS_PER_S

    async def ask(number: int) -> None:
        connection = await AsyncConnection.open(address)
        await asyncio.sleep(pause_s * number / _HONEST_CLIENTS)
        for _ in range(int(seconds / pause_s)):
            started_at = time.perf_counter()
            reply = await connection.request("POST", target, body)
            taken.append(time.perf_counter() - started_at)
            assert reply.status == 200, reply
            await asyncio.sleep(max(0.0, pause_s - taken[-1]))
        connection.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(_HONEST_CLIENTS):
            tasks.create_task(ask(number))
    return taken
