"""A model as `multipart/form-data`, made while it is sent. RFC 7578 describes the format."""

import secrets
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_PIECE_BYTES: Final = 1 << 18


class Form(NamedTuple):
    """What is sent.

    Attributes:
        length_bytes: None where it is known only at the end.
        pieces: all of it; the files are read while it is taken.
    """

    content_type: str
    length_bytes: int | None
    pieces: Iterator[bytes]


def form_of_file(file: Path, fields: Mapping[str, str]) -> Form:
    """A form with a file as it is."""
    boundary = secrets.token_hex(16)
    head, tail = _head(boundary, fields, file.name), _tail(boundary)
    size_bytes = len(head) + file.stat().st_size + len(tail)
    return Form(_content_type(boundary), size_bytes, _around(head, _read(file), tail))


def form_of_folder(files: Mapping[str, Path], fields: Mapping[str, str]) -> Form:
    """A form with an archive of files.

    Args:
        files: by what each is called in the archive.
    """
    boundary = secrets.token_hex(16)
    head, tail = _head(boundary, fields, "model.zip"), _tail(boundary)
    return Form(_content_type(boundary), None, _around(head, _zipped(files), tail))


def _content_type(boundary: str) -> str:
    return f"multipart/form-data; boundary={boundary}"


def _head(boundary: str, fields: Mapping[str, str], file_name: str) -> bytes:
    """All before the file's content."""
    parts = [_part(boundary, f'name="{_quoted(name)}"') + text for name, text in fields.items()]
    parts.append(_part(boundary, f'name="file"; filename="{_quoted(file_name)}"'))
    return "\r\n".join(parts).encode("utf-8", "surrogateescape")


def _part(boundary: str, disposition: str) -> str:
    return f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"


def _tail(boundary: str) -> bytes:
    return f"\r\n--{boundary}--\r\n".encode()


def _quoted(name: str) -> str:
    """A name in a header, escaped as browsers do it."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _around(head: bytes, content: Iterator[bytes], tail: bytes) -> Iterator[bytes]:
    yield head
    yield from content
    yield tail


def _read(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            yield piece


class _Sink:
    """Takes what is written, until somebody takes it away."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """There is nothing behind it."""

    def take(self) -> bytes:
        written, self._written = bytes(self._written), bytearray()
        return written


def _zipped(files: Mapping[str, Path]) -> Iterator[bytes]:
    """An archive; nothing is compressed, for weights hardly can be."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]  # it cannot be sought
        for name, file in files.items():
            info = zipfile.ZipInfo.from_file(file, name, strict_timestamps=False)
            with archive.open(info, "w") as packed:
                for piece in _read(file):
                    packed.write(piece)
                    yield sink.take()
    yield sink.take()
