"""A transport that knows what is still to be sent when it is closed."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any


class WatchedTransport(asyncio.Transport):
    """Passes everything through, but for what comes after the end.

    Args:
        lingers: asked when it is to be closed: whether it is closed later, by another call.
        on_unsent: called when it is closed while there is something left to send, which a client
            that does not read can delay for ever.
    """

    def __init__(
        self,
        inner: asyncio.Transport,
        lingers: Callable[[], bool],
        on_unsent: Callable[[], None],
    ) -> None:
        super().__init__()
        self._inner = inner
        self._lingers = lingers
        self._on_unsent = on_unsent
        self._has_ended = False

    def write(self, data: Any) -> None:
        if not self._has_ended:  # else it is an answer to a client that has been refused meanwhile
            self._inner.write(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if not (self._has_ended or self._inner.is_closing()):
            self._inner.writelines(list_of_data)

    def close(self) -> None:
        if self._inner.is_closing() or self._lingers():
            return
        self._inner.close()
        if self._inner.get_write_buffer_size():
            self._on_unsent()

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return self._inner.can_write_eof()

    def write_eof(self) -> None:
        """Write nothing more, and tell the client so; TLS has no way to."""
        self._has_ended = True
        if self._inner.can_write_eof():
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
