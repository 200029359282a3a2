"""Taking the files out of a zip archive."""

import struct
import zlib
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

from snoozeml.core.disk import out_of_space
from snoozeml.core.unpacking import UnpackJob
from snoozeml.errors import InvalidInput
from snoozeml.prepare.unpack.members import Member, members_of

_PIECE_BYTES: Final = 1 << 20

# What the standard library raises for archives that are not as they should be.
_BROKEN: Final = (
    BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError, OverflowError,
    LookupError, RuntimeError,
)  # fmt: skip


def unpack(job: UnpackJob) -> None:
    """Make the job's folder of what the archive holds.

    Raises:
        InvalidInput: it is no archive, is damaged, or holds what is no plain file.
        PayloadTooLarge: it holds too much, or the disk is full.
        OSError: the disk cannot be written.
    """
    path = Path(job.archive)
    try:
        with ZipFile(path) as archive:
            members = members_of(
                archive.infolist(),
                archive_bytes=path.stat().st_size,
                most_bytes=job.most_bytes,
            )
            if not members:
                raise InvalidInput("the archive is empty")
            _write_all(archive, members, Path(job.folder))
    except _BROKEN as error:
        raise InvalidInput(f"this is no zip archive, or it is damaged: {error}") from error
    except OSError as error:
        raise out_of_space(error, Path(job.folder).parent) or error from error


def _write_all(archive: ZipFile, members: list[Member], folder: Path) -> None:
    folder.mkdir()
    for member in members:
        target = folder / member.path
        target.parent.mkdir(parents=True, exist_ok=True)
        # INVARIANT: the folder is ours and new, its paths have no `..`, and no file is made twice,
        # so nothing outside of it is written.
        with archive.open(member.info) as packed, target.open("xb") as file:
            while piece := packed.read(_PIECE_BYTES):  # no more than `file_size` in all
                file.write(piece)
            _check_whole(member, file.tell())


def _check_whole(member: Member, size_bytes: int) -> None:
    if size_bytes != member.info.file_size:
        raise BadZipFile(f"{member.path} is shorter than it is said to be")
