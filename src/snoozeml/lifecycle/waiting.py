"""Callers that wait for something to come about."""

import asyncio
from typing import Generic, TypeVar

from snoozeml.errors import SnoozeError

T = TypeVar("T")


class Waiting(Generic[T]):
    """Everybody who waits for the same answer."""

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[T]] = []

    def __bool__(self) -> bool:
        """Whether anybody still waits."""
        return any(not future.done() for future in self._futures)

    def join(self) -> asyncio.Future[T]:
        """Await what this returns; cancelling it leaves the others waiting."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        return future

    def answer(self, value: T) -> None:
        for future in self._take():
            future.set_result(value)

    def refuse(self, error: SnoozeError) -> None:
        for future in self._take():
            future.set_exception(error)

    def _take(self) -> list[asyncio.Future[T]]:
        futures, self._futures = self._futures, []
        return [future for future in futures if not future.done()]
