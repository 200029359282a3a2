"""A transport that writes once per turn of the event loop."""

import asyncio
from typing import Any

# Below this size one copy is cheaper than handing the kernel a list of pieces.
_JOIN_BELOW_BYTES = 64 * 1024


class CoalescingTransport(asyncio.Transport):
    """Gathers what is written during one turn of the loop, and hands it on in one piece.

    uvloop sends at once what it is given. A system call costs as much as the rest of a small
    request, and the head and the body of an answer, or the frames of requests that came in
    together, are written a moment apart.
    """

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._gathered: list[bytes] = []

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

    def write(self, data: Any) -> None:
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(data)

    def close(self) -> None:
        self._flush()
        self._inner.close()

    def abort(self) -> None:
        self._gathered.clear()
        self._inner.abort()

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        if not gathered or self._inner.is_closing():
            return
        if sum(map(len, gathered)) < _JOIN_BELOW_BYTES:
            self._inner.write(b"".join(gathered))
        else:
            self._inner.writelines(gathered)
