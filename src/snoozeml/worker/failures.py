"""Exceptions as they travel to the daemon."""

import traceback
from typing import Final

import msgspec

from snoozeml.core.plan import WorkerFailure
from snoozeml.core.text import spelt
from snoozeml.errors import Internal, InvalidInput, OutOfMemory, SnoozeError, shortened

LONGEST_TRACE: Final = 16 * 1024
"""Characters, some hundred frames. An exception's own text may have megabytes."""


class ModelTraceback(Exception):
    """The cause of an error that a model's own code has raised: where, as text for the log."""


def failure_of(error: Exception) -> WorkerFailure:
    """Code and safe message of an exception, and its traceback unless the client was at fault.

    What a model's code has raised comes with the traceback in that code, whoever was at fault.
    """
    if isinstance(error, SnoozeError) and isinstance(error.__cause__, ModelTraceback):
        trace = shortened(str(error.__cause__), LONGEST_TRACE)
        return WorkerFailure(code=error.code, message=error.message, traceback=trace or None)
    if isinstance(error, InvalidInput):
        return WorkerFailure(code=error.code, message=error.message)
    named = _named(error)
    trace = shortened("".join(traceback.format_exception(error)), LONGEST_TRACE)
    return WorkerFailure(code=named.code, message=named.message, traceback=trace)


def encoded(failure: WorkerFailure) -> bytes:
    """As JSON, in which half a surrogate pair is spelt out: it stands in many a message for a name
    that is not UTF-8, and an answer that cannot be written would take the worker along."""
    message, trace = spelt(shortened(failure.message)), failure.traceback
    return msgspec.json.encode(
        msgspec.structs.replace(
            failure, message=message, traceback=None if trace is None else spelt(trace)
        )
    )


def _named(error: Exception) -> SnoozeError:
    if isinstance(error, SnoozeError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory("out of memory in the model's worker")
    return Internal(f"internal error in the model's worker ({type(error).__name__})")
