"""seccomp: system calls that a process does without, for itself and for all that it starts.

Most are refused whatever their arguments say; some depend on them. A filter is a program for the
kernel's packet filter, see seccomp(2), Documentation/userspace-api/seccomp_filter.rst and
linux/filter.h.
"""

import ctypes
import errno
import platform
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from snoozeml.worker.sandbox.libc import call, libc
from snoozeml.worker.sandbox.syscalls import AUDIT_ARCH, NUMBERS

_PR_GET_SECCOMP: Final = 21
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2

# linux/bpf_common.h: load a word of what is judged; AND; jump if equal, if at least; return.
_LOAD: Final = 0x20
_AND: Final = 0x54
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06

# struct seccomp_data: number, architecture, instruction pointer, six arguments of 64 bits. The
# low half of each comes first on the architectures we know, and all that is looked at is there.
_NUMBER_AT: Final = 0
_ARCH_AT: Final = 4
_ARGUMENTS_AT: Final = 16

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_X32: Final = 0x40000000  # the other set of numbers that x86-64 knows


class Test(NamedTuple):
    """Whether an argument, or some bits of it, is a value."""

    argument: int
    value: int
    mask: int = 0xFFFFFFFF


class Refused(NamedTuple):
    """Calls that are refused.

    Attributes:
        names: those that an architecture does not have are left out.
        unless: allowed if all these hold; empty: never.
    """

    names: str
    unless: tuple[Test, ...] = ()
    error: int = errno.EPERM


class RefusedIf(NamedTuple):
    """Calls that are refused if any of these holds."""

    name: str
    any_of: tuple[Test, ...]


Rule = Refused | RefusedIf

_AF_UNIX: Final = 1
_SOCK_STREAM: Final = 1
_SOCK_TYPES: Final = 0xF
_MAP_SHARED_AND_ANONYMOUS: Final = 0x21
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_FIOSETOWN, _SIOCSPGRP, _TIOCSTI = 0x8901, 0x8902, 0x5412
_CLONE_THREAD: Final = 0x10000

_RULES: Final[Sequence[Rule]] = (
    # The network, and whoever listens on this machine. A pair of streams reaches nobody else;
    # a pair for datagrams could be connected anew. io_uring would go round this filter.
    Refused("socket", error=errno.EACCES),
    Refused("socketpair", (Test(0, _AF_UNIX), Test(1, _SOCK_STREAM, _SOCK_TYPES))),
    Refused("io_uring_setup"),
    # Other processes: their memory, descriptors, limits and priority; signals by way of a file.
    Refused("ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd"),
    Refused("migrate_pages move_pages"),
    Refused("prlimit64 sched_setaffinity", (Test(0, 0),)),  # 0 is oneself
    Refused("setpriority", (Test(0, 0), Test(1, 0))),
    Refused("sched_setparam sched_setscheduler sched_setattr ioprio_set"),
    RefusedIf("fcntl", (Test(1, _F_SETOWN), Test(1, _F_SETSIG), Test(1, _F_SETOWN_EX))),
    RefusedIf("ioctl", (Test(1, _FIOSETOWN), Test(1, _SIOCSPGRP), Test(1, _TIOCSTI))),
    # What Landlock does not look at: whose files are, who may use them, and when they changed.
    Refused("chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat"),
    Refused("utime utimes futimesat utimensat"),
    Refused("setxattr lsetxattr fsetxattr setxattrat"),
    Refused("removexattr lremovexattr fremovexattr removexattrat"),
    # Memory that no limit counts, or that is shared with others of this user by name.
    Refused("memfd_create memfd_secret"),
    RefusedIf("mmap", (Test(3, _MAP_SHARED_AND_ANONYMOUS, _MAP_SHARED_AND_ANONYMOUS),)),
    Refused("shmget shmat shmctl semget msgget mq_open"),
    # The user's keyrings, and doors to the kernel that a model has no use for.
    Refused("add_key request_key keyctl"),
    Refused("bpf perf_event_open userfaultfd unshare setns mount umount2 chroot pivot_root"),
    Refused("open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr"),
    Refused("name_to_handle_at open_by_handle_at quotactl kexec_load init_module finit_module"),
)


def rules(pid: int) -> Sequence[Rule]:
    """What a process with this id does without."""
    return (
        *_RULES,
        # No other processes. A thread says in its flags that it is one. `clone3` hides them in
        # memory that a filter cannot look at; the C library falls back to `clone` without it.
        Refused("fork vfork"),
        Refused("clone", (Test(0, _CLONE_THREAD, _CLONE_THREAD),)),
        Refused("clone3", error=errno.ENOSYS),
        # Signals to nobody but itself.
        Refused("kill tgkill rt_sigqueueinfo rt_tgsigqueueinfo", (Test(0, pid),)),
        Refused("tkill pidfd_send_signal"),
    )


def missing() -> tuple[str, ...]:
    """What the system lacks, in words."""
    is_known = sys.platform == "linux" and platform.machine() in NUMBERS
    if is_known and libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0:
        return ()
    return ("seccomp on x86_64 or aarch64",)


def install(refused: Sequence[Rule]) -> None:
    """Let the kernel refuse this, beside what it refuses already; raises OSError."""
    code = b"".join(program(refused, platform.machine()))
    instructions = ctypes.create_string_buffer(code, len(code))
    length = len(code) // _INSTRUCTION.size
    filter_program = _Program(length, ctypes.cast(instructions, ctypes.c_void_p))
    call(libc.prctl, _PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filter_program), 0, 0)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


_INSTRUCTION: Final = struct.Struct("=HBBI")


def program(refused: Sequence[Rule], machine: str) -> Iterator[bytes]:
    """The instructions, one after the other."""
    # Calls by another architecture's numbers would be judged by ours.
    yield _load(_ARCH_AT)
    yield from _return_unless(AUDIT_ARCH[machine], errno.ENOSYS)
    yield _load(_NUMBER_AT)
    if machine == "x86_64":
        yield _INSTRUCTION.pack(_JUMP_AT_LEAST, 0, 1, _X32)
        yield _refuse(errno.ENOSYS)
    for rule in refused:
        for name in rule[0].split():
            if name in NUMBERS[machine]:
                block = list(_judge(rule))
                yield _INSTRUCTION.pack(_JUMP_EQUAL, 0, len(block), NUMBERS[machine][name])
                yield from block
    yield _INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW)


def _judge(rule: Rule) -> Iterator[bytes]:
    """Instructions for a call that the rule is about; the last of them returns."""
    if isinstance(rule, RefusedIf):
        for test in rule.any_of:
            yield from _load_argument(test)
            yield _INSTRUCTION.pack(_JUMP_EQUAL, 0, 1, test.value)
            yield _refuse(errno.EPERM)
    else:
        for test in rule.unless:
            yield from _load_argument(test)
            yield from _return_unless(test.value, rule.error)
        if not rule.unless:
            yield _refuse(rule.error)
            return
    yield _INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW)


def _load(at: int) -> bytes:
    return _INSTRUCTION.pack(_LOAD, 0, 0, at)


def _load_argument(test: Test) -> Iterator[bytes]:
    yield _load(_ARGUMENTS_AT + 8 * test.argument)
    yield _INSTRUCTION.pack(_AND, 0, 0, test.mask)


def _return_unless(value: int, error: int) -> Iterator[bytes]:
    yield _INSTRUCTION.pack(_JUMP_EQUAL, 1, 0, value)
    yield _refuse(error)


def _refuse(error: int) -> bytes:
    return _INSTRUCTION.pack(_RETURN, 0, 0, _ERRNO | error)
