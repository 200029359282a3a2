"""Landlock: a process gives up access to files, for itself and for all that it starts.

Numbers and structures are those of linux/landlock.h, see landlock(7).
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from snoozeml.worker.sandbox.libc import call, libc

# The same on all architectures.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446

_VERSION: Final = 1
_PATH_BENEATH: Final = 1

# Version 3 came with Linux 6.2. Before it, files could be emptied without the right to write.
_LEAST_VERSION: Final = 3

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_IOCTL_DEV: Final = 1 << 15

_ALL_BY_VERSION: Final = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP_BY_VERSION: Final = {3: 0, 4: 0b11}  # binding and connecting
_SCOPES_BY_VERSION: Final = {3: 0, 6: 0b11}  # abstract sockets and signals of others


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@cache
def _version() -> int:
    if sys.platform != "linux":
        return 0
    try:
        return call(libc.syscall, _CREATE_RULESET, None, 0, _VERSION)
    except OSError:  # not built in, or switched off
        return 0


def missing() -> tuple[str, ...]:
    """What the system lacks, in words."""
    return () if _version() >= _LEAST_VERSION else ("Landlock (Linux 6.2 or newer)",)


def restrict(readable: Iterable[Path], writable: Iterable[Path], kept: Iterable[Path]) -> None:
    """Give up everything but this.

    Args:
        readable: files, and folders with all below them, to read and to execute.
        writable: files and devices that may be read and written.
        kept: folders in which everything is allowed.

    What is not there is left out.
    """
    all_rights = _of_version(_ALL_BY_VERSION)
    ruleset = _Ruleset(all_rights, _of_version(_TCP_BY_VERSION), _of_version(_SCOPES_BY_VERSION))
    size = ctypes.sizeof(ruleset)
    fd = call(libc.syscall, _CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    try:
        _allow(fd, readable, _EXECUTE | _READ_FILE | _READ_DIR)
        _allow(fd, writable, (_WRITE_FILE | _READ_FILE | _IOCTL_DEV) & all_rights)
        _allow(fd, kept, all_rights)
        call(libc.syscall, _RESTRICT_SELF, fd, 0)
    finally:
        os.close(fd)


def _of_version(known: dict[int, int]) -> int:
    return known[max(version for version in known if version <= _version())]


def _allow(ruleset_fd: int, paths: Iterable[Path], rights: int) -> None:
    for path in paths:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
            rule = _PathBeneath(rights if is_folder else rights & _OF_FILES, fd)
            call(libc.syscall, _ADD_RULE, ruleset_fd, _PATH_BENEATH, ctypes.byref(rule), 0)
        finally:
            os.close(fd)
