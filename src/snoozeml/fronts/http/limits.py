"""What a client may cost: how slow it may be, and how much it may hold."""

from enum import Enum, auto
from typing import Final, NamedTuple, Self

from snoozeml.config.schema import ServerConfig

LARGEST_HEAD_BYTES: Final = 64 * 1024
"""What a request line and its headers may take together; more than any honest client sends."""

HANG_UP_S: Final = 1.0
"""How long a client that has been refused may be silent before the connection is closed."""


class ClientLimits(NamedTuple):
    """The settings, in seconds and bytes; see their descriptions in the configuration."""

    connections: int = 4096
    inflight_bytes: int = 256 * 2**20
    keep_alive_s: float = 60.0
    header_timeout_s: float = 10.0
    transfer_timeout_s: float = 30.0
    bytes_per_s: int = 16 * 2**10

    @classmethod
    def of(cls, config: ServerConfig, connections: int) -> Self:
        """Those that are configured.

        Args:
            connections: what `max_connections` has come to.
        """
        return cls(
            connections=connections,
            inflight_bytes=max(config.max_inflight_bytes, config.max_request_bytes),
            keep_alive_s=config.keep_alive_secs,
            header_timeout_s=config.header_timeout_secs,
            transfer_timeout_s=config.transfer_timeout_secs,
            bytes_per_s=config.min_transfer_rate,
        )


class Stage(Enum):
    """What a connection waits for, where it waits for its client."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    HANG_UP = auto()


class Transfer:
    """Something that the client is in the middle of.

    Attributes:
        since: monotonic seconds.
        heard_at: when something last came from a client that has been refused.
        moved_bytes: how much of the body or the answer has passed.
    """

    __slots__ = ("heard_at", "moved_bytes", "since", "stage")

    def __init__(self, stage: Stage, since: float) -> None:
        self.stage = stage
        self.since = self.heard_at = since
        self.moved_bytes = 0

    def due_at(self, limits: ClientLimits) -> float:
        """When the client's time is up.

        What moves buys time, so that any size can pass over a slow line; but a trickle does not.
        """
        if self.stage is Stage.HEAD:
            return self.since + limits.header_timeout_s
        due_at = self.since + limits.transfer_timeout_s + self.moved_bytes / limits.bytes_per_s
        return min(due_at, self.heard_at + HANG_UP_S) if self.stage is Stage.HANG_UP else due_at
