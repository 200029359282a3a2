"""Reading `multipart/form-data` as it arrives: one file, which goes to disk, and texts beside it.

The body is never held as a whole. RFC 7578 describes the format.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from snoozeml.errors import (
    DeadlineExceeded,
    InvalidInput,
    PayloadTooLarge,
    UnsupportedMediaType,
)

_FILE_FIELD: Final = "file"
_MOST_PARTS: Final = 64
_MOST_TEXT_BYTES: Final = 64 * 1024  # of all text fields together
MOST_FRAMING_BYTES: Final = 1024 * 1024
"""What a form may have beside its file: boundaries, headers, text."""
_SILENCE_S: Final = 60.0
"""A client that says nothing for so long has gone."""


class Form(NamedTuple):
    """What a form holds beside the file's content."""

    file_name: str
    fields: dict[str, str]


async def read_form(
    content_type: str, body: AsyncIterator[bytes], target: Path, most_bytes: int
) -> Form:
    """Read a form, and write its file to `target`.

    Args:
        most_bytes: what the file may have.

    Raises:
        UnsupportedMediaType: it is no form.
        InvalidInput: it is malformed, or has no file, or more than one.
        PayloadTooLarge: the file is larger.
        DeadlineExceeded: the client has fallen silent.
        OSError: the file cannot be written.
    """
    reader = _FormReader(most_bytes)
    whole = _Room(most_bytes + MOST_FRAMING_BYTES)  # what comes after the last boundary, too
    parser = _parser(content_type, reader)
    with target.open("xb", buffering=0) as file:
        async for piece in _in_time(body):
            whole.take(len(piece), "the form", "max_upload_bytes, and room for its text")
            try:
                parser.write(piece)
            except FormParserError as error:
                raise InvalidInput(f"the form is malformed: {error}") from error
            if reader.content:
                await asyncio.to_thread(_write, file, reader.taken())
    return reader.form()


def _parser(content_type: str, reader: "_FormReader") -> MultipartParser:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        given = content_type or "nothing"
        raise UnsupportedMediaType(
            f"send multipart/form-data with a part named file, not {given!r:.80}"
        )
    callbacks = {
        "on_part_begin": reader.on_part_begin,
        "on_header_field": reader.on_header_field,
        "on_header_value": reader.on_header_value,
        "on_header_end": reader.on_header_end,
        "on_headers_finished": reader.on_headers_finished,
        "on_part_data": reader.on_part_data,
        "on_part_end": reader.on_part_end,
        "on_end": reader.on_end,
    }
    try:
        return MultipartParser(options[b"boundary"], callbacks)  # type: ignore[arg-type]
    except (KeyError, FormParserError, ValueError):
        raise InvalidInput("the content-type of the form names no usable boundary") from None


async def _in_time(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(_SILENCE_S):
                piece = await anext(body)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise DeadlineExceeded(f"nothing came for {_SILENCE_S:g} s") from None
        yield piece


def _write(file: BinaryIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


class _FormReader:
    """What the parser calls.

    Attributes:
        content: pieces of the file that have not been written yet.
    """

    def __init__(self, most_bytes: int) -> None:
        self.content: list[bytes] = []
        self._room = _Room(most_bytes)
        self._text_room = _Room(_MOST_TEXT_BYTES)
        self._parts = 0
        self._fields: dict[str, str] = {}
        self._file_name: str | None = None
        self._ended = False
        self._header, self._value, self._disposition = bytearray(), bytearray(), b""
        self._field: str | None = None  # None: inside the file
        self._text = bytearray()

    def taken(self) -> bytes:
        """The pieces, which are then the caller's."""
        content, self.content = b"".join(self.content), []
        return content

    def form(self) -> Form:
        """All of it, at the end.

        Raises:
            InvalidInput: this is not the end, or there was no file.
        """
        if not self._ended:
            raise InvalidInput("the form ends before its last boundary")
        if self._file_name is None:
            raise InvalidInput("the form has no part named file")
        return Form(self._file_name, self._fields)

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise InvalidInput(f"the form has more than {_MOST_PARTS} parts")
        self._disposition, self._text = b"", bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header, self._value = bytearray(), bytearray()

    def on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or b"name" not in options:
            raise InvalidInput("a part of the form has no name in its Content-Disposition")
        name = _decoded(options[b"name"], "the name of a part")
        if name in self._fields or (name == _FILE_FIELD and self._file_name is not None):
            raise InvalidInput(f"the form has more than one part named {name!r:.80}")
        if name == _FILE_FIELD:
            self._field = None
            self._file_name = _decoded(options.get(b"filename", b""), "the file's name")
        else:
            self._field = name

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._room.take(end - start, "the file", "max_upload_bytes")
            self.content.append(data[start:end])
        else:
            self._text_room.take(end - start, "the form's text", "text fields")
            self._text += data[start:end]

    def on_part_end(self) -> None:
        if self._field is not None:
            self._fields[self._field] = _decoded(bytes(self._text), self._field)

    def on_end(self) -> None:
        self._ended = True


class _Room:
    """What may still come of something."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = self._left_bytes = most_bytes

    def take(self, size_bytes: int, what: str, limit: str) -> None:
        """Raises PayloadTooLarge: there is not so much room left."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise PayloadTooLarge(
                f"{what} is larger than the limit of {self._most_bytes} bytes ({limit})"
            )


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{what:.80} is not UTF-8 text") from None
