"""What the messages of all calls take of the memory that they share."""

from collections.abc import Iterator
from contextlib import contextmanager

from snoozeml.errors import Overloaded
from snoozeml.fronts.grpc.limits import too_large
from snoozeml.fronts.limits import ClientLimits


class HeldMessages:
    """Those that have come and are not answered yet.

    Attributes:
        size_bytes: of all of them. Whoever holds one adds its size, and takes it off once, when it
            has been answered or withdrawn.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self.size_bytes = 0
        self._largest_bytes = limits.request_bytes
        self._most_bytes = limits.inflight_bytes

    def has_room(self, size_bytes: int) -> bool:
        return self.size_bytes + size_bytes <= self._most_bytes

    def check(self, size_bytes: int) -> None:
        """Look at the size of a message that has come.

        Raises:
            PayloadTooLarge: it is too large in any case.
            Overloaded: it is too large beside those that are held.
        """
        if size_bytes > self._largest_bytes:
            raise too_large("message", size_bytes, self._largest_bytes)
        if self.size_bytes + size_bytes > self._most_bytes:
            raise Overloaded(
                f"there is no room for a message of {size_bytes} bytes: those of all calls that "
                f"are not answered yet may take {self._most_bytes} bytes together "
                "(max_inflight_bytes)"
            )

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Hold a message for as long as this lasts; raises like `check`."""
        self.check(size_bytes)
        self.size_bytes += size_bytes
        try:
            yield
        finally:
            self.size_bytes -= size_bytes
