"""How a body of REST's Open Inference Protocol travels in a frame: after four bytes that say how
much of it is JSON.

Over HTTP a header says so, and frames carry no headers. The daemon imports this: no numpy here.
"""

from struct import Struct
from typing import Final

_MARK: Final = Struct("<I")
_ALL: Final = 0xFFFF_FFFF


def mark(json_bytes: int | None) -> bytes:
    """What stands before the body.

    Args:
        json_bytes: how much of it is JSON, before binary tensors; None: all of it.
    """
    return _MARK.pack(_ALL if json_bytes is None else json_bytes)


def unmarked(body: bytes) -> tuple[int | None, memoryview]:
    """What `mark` was told, and a view of the body itself."""
    (json_bytes,) = _MARK.unpack_from(body)
    return None if json_bytes == _ALL else json_bytes, memoryview(body)[_MARK.size :]
