"""System calls through the C library."""

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

libc: Final = ctypes.CDLL(None, use_errno=True)


def call(function: Callable[..., int], *arguments: Any) -> int:
    """Call a function that returns -1 for a failure; raises OSError."""
    result = function(*(_long(argument) for argument in arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def words(*values: int) -> Any:
    """An array of 32-bit numbers."""
    return (ctypes.c_uint32 * len(values))(*values)


def _long(argument: Any) -> Any:
    # A plain int would be passed as 32 bits, and variadic functions read 64.
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
