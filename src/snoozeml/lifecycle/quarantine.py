"""Requests that have killed workers, remembered by their content for a while."""

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b

_KEPT_S = 60.0
_MOST = 1000  # a flood of different killers must not fill the memory


class Quarantine:
    """Knows bodies that may not reach a worker.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[bytes, float] = {}

    def add(self, body: Sequence[bytes]) -> None:
        if len(self._until) >= _MOST:
            self._until.pop(next(iter(self._until)))
        self._until[_digest(body)] = self._clock() + _KEPT_S

    def holds(self, body: Sequence[bytes]) -> bool:
        if not self._until:
            return False  # as good as always: no body is hashed for nothing
        now = self._clock()
        self._until = {digest: until for digest, until in self._until.items() if until > now}
        return bool(self._until) and _digest(body) in self._until


def _digest(body: Sequence[bytes]) -> bytes:
    hashed = blake2b(digest_size=16)
    for piece in body:
        hashed.update(piece)
    return hashed.digest()
