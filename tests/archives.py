"""Zip archives for tests, good ones and such as no honest client sends."""

import io
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile, ZipInfo


def zipped(files: Iterable[tuple[str | ZipInfo, bytes]]) -> bytes:
    """An archive of files by name, or by whatever else a header may say of them."""
    packed = io.BytesIO()
    with ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()


def zipped_folder(folder: Path, top: str = "") -> bytes:
    """An archive of a folder's files, inside a folder `top` if it is given."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return zipped((str(Path(top, path.relative_to(folder))), path.read_bytes()) for path in files)


def named(name: str, *, mode: int = 0, flags: int = 0) -> ZipInfo:
    """A header with a name that the library would not write by itself."""
    info = ZipInfo("x")
    info.filename = name
    info.create_system = 3
    info.external_attr = mode << 16
    info.flag_bits |= flags
    return info


LINK = stat.S_IFLNK | 0o777
DEVICE = stat.S_IFCHR | 0o666


def patched(archive: bytes, before: bytes, after: bytes) -> bytes:
    """The archive with other bytes of the same number in place of some."""
    assert len(before) == len(after)
    assert before in archive
    return archive.replace(before, after)
