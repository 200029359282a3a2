"""Disks: what a full one is called, and waiting until what was written is there."""

import errno
import os
import resource
import shutil
from pathlib import Path
from typing import Final

from snoozeml.errors import PayloadTooLarge

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


def out_of_space(error: OSError, folder: Path) -> PayloadTooLarge | None:
    """The failure to be told if a disk, a quota or a limit on files is exhausted.

    Args:
        folder: where it was written to.
    """
    if error.errno == errno.EFBIG:
        return _too_large()
    return no_room(folder) if error.errno in _NO_SPACE else None


def no_room(folder: Path) -> PayloadTooLarge:
    """There is not enough room where models are kept."""
    free_bytes = shutil.disk_usage(folder).free
    return PayloadTooLarge(
        f"the model does not fit on the disk that the models are on: {free_bytes} bytes are free "
        "there now"
    )


def _too_large() -> PayloadTooLarge:
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit_bytes == resource.RLIM_INFINITY:
        than = "the file system that the models are on can hold"
    else:
        than = f"the {limit_bytes} bytes that the daemon may write into one (ulimit -f)"
    return PayloadTooLarge(f"a file of the model is larger than {than}")


def fsync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
