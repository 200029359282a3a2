"""Work that is in vain once the client has left."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Scope

from snoozeml.errors import Cancelled
from snoozeml.fronts.http.answers import connection_of

T = TypeVar("T")


async def while_present(scope: Scope, work: Coroutine[Any, Any, T]) -> T:
    """Do what a request asks for, and cancel that when its client leaves.

    Raises:
        Cancelled: the client has left.
    """
    connection, task = connection_of(scope), asyncio.ensure_future(work)

    def leave() -> None:
        task.cancel()

    connection.on_gone = leave
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        leave()
        raise
    finally:
        connection.on_gone = None
    if task.cancelled():
        raise Cancelled("the client has left")
    return task.result()
