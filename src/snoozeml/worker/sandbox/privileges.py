"""Privileges given up, and limits on resources."""

import resource
from typing import Final

from snoozeml.worker.sandbox.libc import call, libc, words

_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITY_VERSION: Final = 0x20080522
_DESCRIPTORS: Final = 1024
_THREADS: Final = 1024

SCRATCH_BYTES: Final = 64 * 2**20
"""What a model may write, in all its temporary files together."""


def renounce_new() -> None:
    """Running a program, even one that belongs to root, gives no privilege any more."""
    call(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop() -> None:
    """Give up all capabilities; a daemon that runs as root would pass on all there are."""
    call(libc.capset, words(_CAPABILITY_VERSION, 0), words(0, 0, 0, 0, 0, 0))


def limit_resources(memory_bytes: int) -> None:
    """No core dumps, and bounds on memory, on the size of a file, and on open files.

    Memory means private memory that can be written to, stacks of threads included: address space
    that is merely reserved, as CUDA does, costs nothing.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, SCRATCH_BYTES)
    _limit(resource.RLIMIT_NOFILE, _DESCRIPTORS)
    _limit(resource.RLIMIT_DATA, memory_bytes)


def limit_threads() -> None:
    """Bound the number of threads, where they are counted for this process alone.

    Without a user namespace of its own, the kernel counts all that the user runs. It does not
    count for root.
    """
    _limit(resource.RLIMIT_NPROC, _THREADS)


def _limit(what: int, at_most: int) -> None:
    hard = resource.getrlimit(what)[1]
    limit = at_most if hard == resource.RLIM_INFINITY else min(at_most, hard)
    resource.setrlimit(what, (limit, limit))
