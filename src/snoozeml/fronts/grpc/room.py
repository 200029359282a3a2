"""How much of one stream may be under way."""

import asyncio
from typing import Final

_AT_ONCE: Final = 256
_FIRST_ANSWERS: Final = 16


class Room:
    """Requests of one stream that are to be answered, and answers that its client is to read.

    How large an answer will be is not known before; it is taken to be as large as the largest so
    far. Until there is one, there are few requests at once.

    Args:
        most_bytes: what they may take together; a request has room in any case when it is alone.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._requests = 0
        self._answers = 0
        self._held_bytes = 0
        self._largest_answer_bytes: int | None = None
        self._freed = asyncio.Event()

    async def enter(self, request_bytes: int) -> None:
        """Wait until there is room for a request; one at a time."""
        while not self._has_room(request_bytes):
            self._freed.clear()
            await self._freed.wait()
        self._requests += 1
        self._held_bytes += request_bytes

    def answered(self, request_bytes: int, answer_bytes: int) -> None:
        """A request is forgotten, and its answer is to be read."""
        self._requests -= 1
        self._answers += 1
        self._held_bytes += answer_bytes - request_bytes
        self._largest_answer_bytes = max(self._largest_answer_bytes or 0, answer_bytes)
        self._freed.set()

    def leave(self, answer_bytes: int) -> None:
        """An answer has been read."""
        self._answers -= 1
        self._held_bytes -= answer_bytes
        self._freed.set()

    def _has_room(self, request_bytes: int) -> bool:
        if not self._requests + self._answers:
            return True
        answer_bytes = self._largest_answer_bytes
        if answer_bytes is None:
            answer_bytes = self._most_bytes // _FIRST_ANSWERS
        expected_bytes = self._held_bytes + request_bytes + (self._requests + 1) * answer_bytes
        return self._requests + self._answers < _AT_ONCE and expected_bytes <= self._most_bytes
