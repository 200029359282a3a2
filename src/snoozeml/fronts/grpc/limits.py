"""What a gRPC client may cost: how much it may have open, and how slow it may be."""

import math
from typing import Final, NamedTuple, Self

from snoozeml.config.schema import ServerConfig

CALLS_AT_ONCE: Final = 1024
"""Calls under way on one connection; more than one model queues by default are refused anyway. A
smaller number would have grpcio refuse those of honest clients, since it counts calls that have
ended for a moment more."""

METADATA_BYTES: Final = 16 * 1024
"""What the metadata of a call may take, counted as HTTP/2 counts a list of headers."""

_MOST_MS: Final = 2**31 - 1  # what the libraries take to be for ever


class CallLimits(NamedTuple):
    """The settings, in seconds and bytes; see their descriptions in the configuration."""

    message_bytes: int
    connections: int = 4096
    keep_alive_s: float = 60.0
    header_timeout_s: float = 10.0
    transfer_timeout_s: float = 30.0
    bytes_per_s: float = 16 * 2**10

    @classmethod
    def of(cls, config: ServerConfig, connections: int) -> Self:
        """Those that are configured.

        Args:
            connections: what `max_connections` has come to.
        """
        return cls(
            message_bytes=config.max_request_bytes,
            connections=connections,
            keep_alive_s=config.keep_alive_secs,
            header_timeout_s=config.header_timeout_secs,
            transfer_timeout_s=config.transfer_timeout_secs,
            bytes_per_s=config.min_transfer_rate,
        )

    def transfer_s(self, size_bytes: int) -> float:
        """How long a message of this size may take to pass, of which nothing is seen meanwhile."""
        return self.transfer_timeout_s + size_bytes / self.bytes_per_s


def milliseconds(seconds: float) -> int:
    """A time as the libraries want it."""
    return min(_MOST_MS, math.ceil(seconds * 1000))
