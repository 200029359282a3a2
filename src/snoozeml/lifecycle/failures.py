"""What workers say that went wrong, as far as the daemon believes it."""

from typing import Final

import msgspec

from snoozeml.core.plan import WorkerFailure
from snoozeml.errors import Internal

_MOST_BYTES: Final = 256 * 1024
"""Of a failure; twice what a worker says at most, every character of it escaped."""

_decode: Final = msgspec.json.Decoder(WorkerFailure).decode


def failure_in(body: bytes) -> WorkerFailure:
    """Read a failure; a process that runs a model's own code may have sent anything."""
    if len(body) <= _MOST_BYTES:
        try:
            return _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    why = f"the model's worker failed, and said why in {len(body)} bytes that cannot be read"
    return WorkerFailure(code=Internal.code, message=why)
