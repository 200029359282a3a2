"""Failures of a model's code, as errors of ours."""

import sys
from typing import TYPE_CHECKING, NoReturn

from snoozeml.errors import from_code
from snoozeml.worker.failures import ModelTraceback

if TYPE_CHECKING:
    from snoozeml.worker.engines.python.guest import Failure


def fail(failure: "Failure", *, while_loading: bool = False) -> NoReturn:
    """Raise the error, with the traceback as its cause.

    Args:
        while_loading: nobody else will log the traceback, so it goes to standard error.
    """
    code, message, trace = failure
    if while_loading:
        sys.stderr.write(trace)
    raise from_code(code, message) from ModelTraceback(trace)
