"""A user and mount namespace of its own, for a temporary folder that nobody else sees.

See user_namespaces(7) and mount_namespaces(7). The folder lies in memory, has a size, and ends with
the last process in the namespace, however that ends.
"""

import os
from pathlib import Path
from typing import Final

from snoozeml.worker.sandbox.libc import call, libc
from snoozeml.worker.sandbox.privileges import SCRATCH_BYTES

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_MS_NOSUID: Final = 0x2
_MS_NODEV: Final = 0x4
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000
_FILES: Final = 4096


def enter(scratch: Path) -> str | None:
    """Enter the namespaces, and lay a temporary folder over an empty one.

    Returns:
        why there is no temporary folder, in words; None: there is.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        call(libc.unshare, _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWIPC)
        # The same user and group as outside, and no others.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
        call(libc.mount, b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
        options = f"size={SCRATCH_BYTES},nr_inodes={_FILES},mode=0700".encode()
        flags = _MS_NOSUID | _MS_NODEV
        call(libc.mount, b"tmpfs", bytes(scratch), b"tmpfs", flags, options)
    except OSError as error:
        return f"user namespaces ({error.strerror}), so the model has no temporary folder"
    return None
