"""A transport that can send the head and the body of an answer in one system call."""

import asyncio
from collections.abc import Callable
from typing import Any


class HoldingTransport(asyncio.Transport):
    """Passes everything through, except while it is told to hold what is written.

    uvloop sends at once what it is given, and a system call costs as much as the rest of a small
    answer.

    Args:
        on_unsent: called when it is closed while there is something left to send, which a client
            that does not read can delay for ever.
    """

    def __init__(self, inner: asyncio.Transport, on_unsent: Callable[[], None]) -> None:
        super().__init__()
        self._inner = inner
        self._on_unsent = on_unsent
        self._held: list[bytes] | None = None
        self._has_ended = False

    def hold(self) -> None:
        """Keep what is written from now on, until `release`."""
        self._held = []

    def release(self) -> None:
        """Send what has been kept, in one piece."""
        held, self._held = self._held, None
        if held and not (self._has_ended or self._inner.is_closing()):
            self._inner.writelines(held)

    def write(self, data: Any) -> None:
        if self._has_ended:
            return  # an answer to a client that has been refused meanwhile
        if self._held is None:
            self._inner.write(data)
        else:
            self._held.append(data)

    def close(self) -> None:
        self.release()
        self._inner.close()
        if self._inner.get_write_buffer_size():
            self._on_unsent()

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return self._inner.can_write_eof()

    def write_eof(self) -> None:
        self._has_ended = True
        self._inner.write_eof()

    def abort(self) -> None:
        self._inner.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner.set_protocol(protocol)
