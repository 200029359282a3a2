"""How every transport treats those who call it."""

import math
import secrets
from typing import Final

from snoozeml.errors import InvalidInput, SnoozeError

LONGEST_TIMEOUT_MS: Final = 24 * 3600 * 1000

_RETRY_AFTER: Final = frozenset({"overloaded", "model_loading", "out_of_memory", "model_failed"})
_LONGEST_REQUEST_ID: Final = 128


def new_request_id() -> str:
    return secrets.token_hex(8)


def usable_request_id(given: bytes) -> bool:
    """Take only an id that can be written into a log line and a header as it is."""
    return (
        0 < len(given) <= _LONGEST_REQUEST_ID and given.isascii() and given.decode().isprintable()
    )


def retry_after(error: SnoozeError) -> int | None:
    """In how many seconds a client should try again; None: waiting is no use, or nobody knows."""
    if not error.retryable or (error.code not in _RETRY_AFTER and error.retry_after_s is None):
        return None
    return max(1, math.ceil(error.retry_after_s or 0))


def fails_fast(where: str, wish: bytes) -> bool:
    """Whether the client would rather have an error than wait for a model to load.

    Args:
        where: what the client wrote its wish into, for the message.

    Raises:
        InvalidInput: it wishes something else.
    """
    if wish not in (b"wait", b"fail-fast"):
        given = wish.decode("latin-1")
        raise InvalidInput(f"{where} must be wait or fail-fast, not {given!r:.60}")
    return wish == b"fail-fast"
