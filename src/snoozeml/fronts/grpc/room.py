"""How much of one stream may be under way."""

import asyncio
from typing import Final

from snoozeml.fronts.grpc.held import HeldMessages

_AT_ONCE: Final = 256
_FIRST_ANSWERS: Final = 16


class Room:
    """Requests of one stream that are to be answered, and answers that its client is to read.

    How large an answer will be is not known before; it is taken to be as large as the largest so
    far. Until there is one, there are few requests at once.

    Args:
        most_bytes: what they may take together, and a request at most; it has room in any case
            when it is alone.
        held: the requests of all clients, among which those of this stream are counted.
    """

    def __init__(self, most_bytes: int, held: HeldMessages) -> None:
        self._most_bytes = most_bytes
        self._held = held
        self._taken_bytes = 0
        self._requests = 0
        self._answers = 0
        self._held_bytes = 0
        self._largest_answer_bytes: int | None = None
        self._freed = asyncio.Event()

    async def enter(self, request_bytes: int) -> None:
        """Wait until there is room for a request that has come; one at a time.

        Raises:
            Overloaded: the requests of all clients leave none; at once.
        """
        self._held.check(request_bytes)
        self._held.size_bytes += request_bytes
        self._taken_bytes += request_bytes
        while not self._has_room(request_bytes):
            self._freed.clear()
            await self._freed.wait()
        self._requests += 1
        self._held_bytes += request_bytes

    async def for_another(self) -> None:
        """Wait until another request may come, whatever its size.

        While requests of this stream are under way, it may only where it will not be refused for
        those of all clients: it would else ask for more than there is, and be told so.
        """
        while self._requests and not self._held.has_room(self._most_bytes):
            self._freed.clear()
            await self._freed.wait()

    def close(self) -> None:
        """The stream is over, and what it has taken and not answered is forgotten."""
        self._give_back(self._taken_bytes)

    def answered(self, request_bytes: int, answer_bytes: int) -> None:
        """A request is forgotten, and its answer is to be read."""
        self._give_back(request_bytes)
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

    def _give_back(self, request_bytes: int) -> None:
        self._held.size_bytes -= request_bytes
        self._taken_bytes -= request_bytes

    def _has_room(self, request_bytes: int) -> bool:
        if not self._requests + self._answers:
            return True
        answer_bytes = self._largest_answer_bytes
        if answer_bytes is None:
            answer_bytes = self._most_bytes // _FIRST_ANSWERS
        expected_bytes = self._held_bytes + request_bytes + (self._requests + 1) * answer_bytes
        return self._requests + self._answers < _AT_ONCE and expected_bytes <= self._most_bytes
