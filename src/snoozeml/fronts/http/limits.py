"""How slow a client may be over HTTP, and how large what comes around its bodies."""

from enum import Enum, auto
from typing import Final

from snoozeml.fronts.limits import ClientLimits

LARGEST_HEAD_BYTES: Final = 64 * 1024
"""What a request line and its headers may take together; more than any honest client sends."""

HANG_UP_S: Final = 1.0
"""How long a client that has been refused may be silent before the connection is closed."""


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
        """When the client's time is up."""
        if self.stage is Stage.HEAD:
            return self.since + limits.header_timeout_s
        due_at = self.since + limits.transfer_s(self.moved_bytes)
        return min(due_at, self.heard_at + HANG_UP_S) if self.stage is Stage.HANG_UP else due_at
