"""What one connection's bodies take of the memory that all of them share."""

from collections import deque
from typing import Final

from snoozeml.fronts.http.crowd import Client, Crowd


class HeldBodies:
    """The bodies of requests that are not answered, in their order; pipelined ones included."""

    def __init__(self, client: Client, crowd: Crowd) -> None:
        self._client: Final = client
        self._crowd: Final = crowd
        self._sizes: Final[deque[int]] = deque()
        self._keeps_last = True

    def begin(self) -> None:
        """The next one follows."""
        self._sizes.append(0)
        self._keeps_last = True

    def add(self, size_bytes: int) -> None:
        """Count a piece of the last one; whoever's body must make room for it is told so."""
        if self._keeps_last and self._sizes:
            self._sizes[-1] += size_bytes
            self._crowd.hold(self._client, size_bytes)

    def pass_on(self) -> None:
        """The last one goes to disk as it comes, and is not held in memory."""
        self._keeps_last = False
        if self._sizes:
            self._crowd.release(self._sizes[-1])
            self._sizes[-1] = 0

    def drop_first(self) -> None:
        """Its request has been answered."""
        if self._sizes:
            self._crowd.release(self._sizes.popleft())

    def drop_all(self) -> None:
        self._crowd.release(sum(self._sizes))
        self._sizes.clear()
