"""Handing descriptors to the event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def taken_over(making: Coroutine[Any, Any, tuple[Any, T]]) -> T:
    """Wait until the loop has made a transport of a socket or a pipe; returns its protocol.

    uvloop does not take it over cleanly when it is cancelled meanwhile: it closes the descriptor,
    and the Python object closes the same number again, when somebody else may have it. So here it
    comes about in any case, which takes a turn of the loop, and is closed then.
    """
    task = asyncio.ensure_future(making)
    try:
        _, protocol = await asyncio.shield(task)
    except asyncio.CancelledError:
        transport, _ = await task
        transport.close()
        raise
    return protocol
