"""Numbers of system calls, as in asm/unistd_64.h and asm-generic/unistd.h of Linux."""

from collections.abc import Mapping
from typing import Final

AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""What the kernel calls an architecture when it judges a call, from linux/audit.h."""

# fmt: off
NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    "x86_64": {
        "add_key": 248, "bpf": 321, "chmod": 90, "chown": 92, "chroot": 161, "clone": 56,
        "clone3": 435, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "fchown": 93,
        "fchownat": 260, "fcntl": 72, "finit_module": 313, "fork": 57, "fremovexattr": 199,
        "fsconfig": 431, "fsetxattr": 190, "fsmount": 432, "fsopen": 430, "fspick": 433,
        "futimesat": 261, "init_module": 175, "io_uring_setup": 425, "ioctl": 16,
        "ioprio_set": 251, "kcmp": 312, "kexec_load": 246, "keyctl": 250, "kill": 62, "lchown": 94,
        "lremovexattr": 198, "lsetxattr": 189, "memfd_create": 319, "memfd_secret": 447,
        "migrate_pages": 256, "mmap": 9, "mount": 165, "mount_setattr": 442, "move_mount": 429,
        "move_pages": 279, "mq_open": 240, "msgget": 68, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "open_tree": 428, "perf_event_open": 298, "pidfd_getfd": 438,
        "pidfd_send_signal": 424, "pivot_root": 155, "prlimit64": 302, "process_madvise": 440,
        "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "quotactl": 179,
        "removexattr": 197, "removexattrat": 466, "request_key": 249, "rt_sigqueueinfo": 129,
        "rt_tgsigqueueinfo": 297, "sched_setaffinity": 203, "sched_setattr": 314,
        "sched_setparam": 142, "sched_setscheduler": 144, "semget": 64, "setns": 308,
        "setpriority": 141, "setxattr": 188, "setxattrat": 463, "shmat": 30, "shmctl": 31,
        "shmget": 29, "socket": 41, "socketpair": 53, "tgkill": 234, "tkill": 200, "umount2": 166,
        "unshare": 272, "userfaultfd": 323, "utime": 132, "utimensat": 280, "utimes": 235,
        "vfork": 58,
    },
    "aarch64": {
        "add_key": 217, "bpf": 280, "chroot": 51, "clone": 220, "clone3": 435, "fchmod": 52,
        "fchmodat": 53, "fchmodat2": 452, "fchown": 55, "fchownat": 54, "fcntl": 25,
        "finit_module": 273, "fremovexattr": 16, "fsconfig": 431, "fsetxattr": 7, "fsmount": 432,
        "fsopen": 430, "fspick": 433, "init_module": 105, "io_uring_setup": 425, "ioctl": 29,
        "ioprio_set": 30, "kcmp": 272, "kexec_load": 104, "keyctl": 219, "kill": 129,
        "lremovexattr": 15, "lsetxattr": 6, "memfd_create": 279, "memfd_secret": 447,
        "migrate_pages": 238, "mmap": 222, "mount": 40, "mount_setattr": 442, "move_mount": 429,
        "move_pages": 239, "mq_open": 180, "msgget": 186, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "open_tree": 428, "perf_event_open": 241, "pidfd_getfd": 438,
        "pidfd_send_signal": 424, "pivot_root": 41, "prlimit64": 261, "process_madvise": 440,
        "process_vm_readv": 270, "process_vm_writev": 271, "ptrace": 117, "quotactl": 60,
        "removexattr": 14, "removexattrat": 466, "request_key": 218, "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240, "sched_setaffinity": 122, "sched_setattr": 274,
        "sched_setparam": 118, "sched_setscheduler": 119, "semget": 190, "setns": 268,
        "setpriority": 140, "setxattr": 5, "setxattrat": 463, "shmat": 196, "shmctl": 195,
        "shmget": 194, "socket": 198, "socketpair": 199, "tgkill": 131, "tkill": 130,
        "umount2": 39, "unshare": 97, "userfaultfd": 282, "utimensat": 88,
    },
}
# fmt: on
