"""One job on standard input, one outcome on standard output."""

import os
import resource
import sys
import traceback
from contextlib import suppress
from typing import Final

import msgspec

from snoozeml.core.unpacking import UnpackJob, UnpackOutcome
from snoozeml.errors import Internal, OutOfMemory, SnoozeError
from snoozeml.prepare.unpack.archive import unpack

_MOST_MEMORY_BYTES: Final = 1 << 30
"""An archive's list of files is read as a whole; one that needs more is no model."""


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=UnpackJob)
    with suppress(ValueError):  # not every system has such a limit
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    os.nice(5)  # models that are being served go first
    sys.stdout.buffer.write(msgspec.json.encode(UnpackOutcome(error=_error(job))) + b"\n")


def _error(job: UnpackJob) -> tuple[str, str] | None:
    try:
        unpack(job)
    except SnoozeError as error:
        return error.code, error.message
    except MemoryError:
        return OutOfMemory.code, "out of memory while unpacking; the archive lists too many files"
    except Exception:
        traceback.print_exc()
        return Internal.code, "unpacking failed unexpectedly; the log has more"
    return None


if __name__ == "__main__":
    main()
