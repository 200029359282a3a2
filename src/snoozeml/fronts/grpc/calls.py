"""One call as its handler sees it, whichever library serves it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from snoozeml.core.request import InferenceResult
from snoozeml.lifecycle.ticket import Ticket
from snoozeml.serving.auth import CREDENTIAL_HEADERS, Credentials

Metadata = Sequence[tuple[str, str | bytes]]

_CREDENTIAL_KEYS: Final = frozenset(name.decode() for name in CREDENTIAL_HEADERS)


class Call:
    """What a call says beside its messages.

    Attributes:
        deadline: monotonic seconds at which its client gives up; None: never.
    """

    __slots__ = ("_metadata", "deadline")

    def __init__(self, metadata: Metadata, deadline: float | None) -> None:
        self._metadata: Final = metadata
        self.deadline: Final = deadline

    def get(self, key: str) -> bytes | None:
        """A value of the call's metadata; `key` is in lower case."""
        for name, value in self._metadata:
            if name == key:
                return value.encode() if isinstance(value, str) else value
        return None

    @property
    def credentials(self) -> Credentials:
        """What the authoriser wants to see."""
        return [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in self._metadata
            if name in _CREDENTIAL_KEYS
        ]


class Answer(NamedTuple):
    """One message, and what a call that ends well says after it."""

    body: bytes
    trailing: Metadata = ()


class Asking(Protocol):
    """Answers one message with a model's answer, in two steps and without a task in between."""

    def begin(self, call: Call, body: bytes, /) -> Ticket:
        """Raises SnoozeError. Who gets the ticket says `abandon` when the client has left."""

    def end(self, call: Call, result: InferenceResult, /) -> Answer:
        """Raises SnoozeError."""

    async def answer(self, call: Call, body: bytes, /) -> Answer:
        """Both steps, as a `Unary`."""


class Failure(NamedTuple):
    """How a call ends that does not end well; `code` is one of gRPC's numbers."""

    code: int
    message: str
    trailing: Metadata


Unary = Callable[[Call, bytes], Awaitable[Answer]]
"""Answers one message with one; raises SnoozeError. Cancelled when the client has left."""

Write = Callable[[bytes], Awaitable[None]]
"""Sends one message, when the client has room for it; one at a time."""

Streaming = Callable[[Call, AsyncIterator[bytes], Write], Awaitable[None]]
"""Answers messages with messages; raises SnoozeError. Cancelled when the client has left."""
