"""Limits of gRPC beside those of all clients, and how its libraries want them written."""

import math
from typing import Final

from snoozeml.errors import PayloadTooLarge

CALLS_AT_ONCE: Final = 1024
"""Calls under way on one connection; more than one model queues by default are refused anyway. A
smaller number would have grpcio refuse those of honest clients, since it counts calls that have
ended for a moment more."""

METADATA_BYTES: Final = 16 * 1024
"""What the metadata of a call may take, counted as HTTP/2 counts a list of headers."""

_MOST_MS: Final = 2**31 - 1  # what the libraries take to be for ever


def too_large(what: str, size_bytes: int, limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the {what} has {size_bytes} bytes, more than the limit of {limit_bytes} "
        "(max_request_bytes)"
    )


def milliseconds(seconds: float) -> int:
    """A time as the libraries want it."""
    return min(_MOST_MS, math.ceil(seconds * 1000))
