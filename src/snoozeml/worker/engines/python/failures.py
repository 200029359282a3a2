"""Failures of a model's code, as errors of ours."""

import sys
from typing import TYPE_CHECKING, Final, NoReturn

from snoozeml.errors import InferenceFailed, from_code, shortened
from snoozeml.worker.failures import LONGEST_TRACE, ModelTraceback

if TYPE_CHECKING:
    from snoozeml.worker.engines.python.guest import Failure


_CODES: Final = frozenset({"inference_failed", "invalid_input", "model_failed", "out_of_memory"})
"""What can be wrong with code; a process that speaks for itself may claim other things."""


def fail(failure: "Failure", *, while_loading: bool = False) -> NoReturn:
    """Raise the error, with the traceback as its cause.

    Args:
        while_loading: nobody else will log the traceback, so it goes to standard error.
    """
    code, message, trace = failure
    if while_loading:
        sys.stderr.write(shortened(trace, LONGEST_TRACE))
    known = code if code in _CODES else InferenceFailed.code
    raise from_code(known, message) from ModelTraceback(trace)
