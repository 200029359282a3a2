"""What an archive holds, and whether it may be taken out; nothing is written here.

All of an archive is judged before any of it is unpacked.
"""

import re
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipInfo

from snoozeml.errors import InvalidInput, PayloadTooLarge

MOST_MEMBERS: Final = 10_000
_LONGEST_NAME_BYTES: Final = 255  # what file systems take
_LONGEST_PATH_BYTES: Final = 1024
_DEEPEST: Final = 16

# Deflating saves little on weights; it saves much on text and zeros, but those are small.
_HIGHEST_RATIO: Final = 100
_ANY_RATIO_BYTES: Final = 64 * 2**20

_UTF8_FLAG: Final = 0x800
_ENCRYPTED_FLAGS: Final = 0x41
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_NOT_CONTENT: Final = ("__MACOSX", ".DS_Store")  # what one system puts into archives unasked


class Member(NamedTuple):
    """A file to be taken out.

    Attributes:
        path: relative, without links or `..`.
    """

    info: ZipInfo
    path: PurePosixPath


def members_of(infos: Sequence[ZipInfo], *, archive_bytes: int, most_bytes: int) -> list[Member]:
    """The files of an archive; if all lie in one folder, relative to that.

    Args:
        archive_bytes: the archive's own size.
        most_bytes: what the files may take together.

    Raises:
        InvalidInput: something in it is not a plain file with a plain name; says what.
        PayloadTooLarge: there is too much of it.
    """
    if len(infos) > MOST_MEMBERS:
        raise PayloadTooLarge(
            f"the archive holds {len(infos)} files, and {MOST_MEMBERS} is the limit"
        )
    named = [Member(info, _path(info)) for info in infos]
    members = [member for member in named if _is_content(member.path)]
    for member in members:
        _check_kind(member)
    files = [member for member in members if not member.info.is_dir()]
    _check_sizes((m.info.file_size for m in files), archive_bytes, most_bytes)
    _check_clashes(files)
    return _without_top(files)


def _path(info: ZipInfo) -> PurePosixPath:
    name = _text(info)
    if "\\" in name:
        raise _bad_name(name, "it contains a backslash")
    if name.startswith("/"):
        raise _bad_name(name, "it is absolute")
    if _DRIVE.match(name):
        raise _bad_name(name, "it names a drive")
    parts = name.removesuffix("/").split("/")
    if why := next(filter(None, map(_why_bad_part, parts)), None):
        raise _bad_name(name, why)
    if len(parts) > _DEEPEST or len(name.encode()) > _LONGEST_PATH_BYTES:
        raise _bad_name(name, "it is too long or too deep")
    return PurePosixPath(*parts)


def _text(info: ZipInfo) -> str:
    """The name that was meant. Raises InvalidInput: it is no text."""
    name = info.orig_filename
    if info.flag_bits & _UTF8_FLAG or name.isascii():
        return name
    # Without the flag it is in the code page of whoever packed it; many mean UTF-8.
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        raise _bad_name(name, "it is not UTF-8") from None


def _why_bad_part(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"{part!r} is no name"
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in part):
        return "it contains a control character"
    if len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME_BYTES:
        return f"a part of it is longer than {_LONGEST_NAME_BYTES} bytes"
    return None


def _bad_name(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"the archive holds {name!r:.120}, which is refused: {why}")


def _is_content(path: PurePosixPath) -> bool:
    return path.parts[0] not in _NOT_CONTENT and path.name not in _NOT_CONTENT


def _check_kind(member: Member) -> None:
    """Raises InvalidInput: it is no plain file or folder, or not packed as plainly as it may be."""
    info, kind = member.info, stat.S_IFMT(member.info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR) > info.is_dir():
        raise _bad_name(str(member.path), "it is neither a regular file nor a folder")
    if info.header_offset < 0:
        raise _bad_name(str(member.path), "it is said to begin before the archive does")
    if info.flag_bits & _ENCRYPTED_FLAGS:
        raise _bad_name(str(member.path), "it is encrypted")
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise _bad_name(str(member.path), "it is compressed otherwise than by deflate")


def _check_sizes(sizes: Iterable[int], archive_bytes: int, most_bytes: int) -> None:
    total = sum(sizes)
    if total > most_bytes:
        raise PayloadTooLarge(
            f"the archive unpacks to {total} bytes, more than the limit of {most_bytes} "
            "(max_upload_bytes)"
        )
    if total > max(_ANY_RATIO_BYTES, archive_bytes * _HIGHEST_RATIO):
        raise PayloadTooLarge(
            f"the archive has {archive_bytes} bytes and unpacks to {total}, and "
            f"{_HIGHEST_RATIO} times its size is the limit"
        )


def _check_clashes(files: Sequence[Member]) -> None:
    """Raises InvalidInput: on some file system two of these would be one."""
    seen: dict[str, PurePosixPath] = {}
    for _, path in files:
        other = seen.setdefault(_folded(path), path)
        if other is not path:
            raise _bad_name(str(path), f"it is there twice, if {str(other)!r:.120} is the same")
    folders: dict[str, PurePosixPath] = {}
    for _, path in files:
        for folder in path.parents[:-1]:
            other = folders.setdefault(_folded(folder), folder)
            if other != folder or _folded(folder) in seen:
                raise _bad_name(
                    str(path), f"{str(folder)!r:.120} is there under two names or as a file"
                )


def _folded(path: PurePosixPath) -> str:
    return unicodedata.normalize("NFC", str(path)).casefold()


def _without_top(files: list[Member]) -> list[Member]:
    tops = {path.parts[0] for _, path in files}
    if len(tops) != 1 or any(len(path.parts) == 1 for _, path in files):
        return files
    return [Member(info, PurePosixPath(*path.parts[1:])) for info, path in files]
