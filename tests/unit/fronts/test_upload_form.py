"""A form is read in whatever pieces it comes, and never kept as a whole."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from snoozeml.errors import (
    DeadlineExceeded,
    InvalidInput,
    PayloadTooLarge,
    SnoozeError,
    UnsupportedMediaType,
)
from snoozeml.fronts.http import upload_form
from snoozeml.fronts.http.upload_form import Form, read_form

TYPE = "multipart/form-data; boundary=b"
MIB = 2**20


def part(name: str, content: bytes, file_name: str | None = None) -> bytes:
    file = "" if file_name is None else f'; filename="{file_name}"'
    return (
        f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
        + content
        + b"\r\n"
    )


END = b"--b--\r\n"
GOOD = part("model_id", b"bge") + part("file", b"\r\n--content--b", "x.onnx") + END


def read(pieces: Iterable[bytes], target: Path, kind: str = TYPE, most_bytes: int = MIB) -> Form:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return asyncio.run(read_form(kind, body(), target, most_bytes))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_pieces_of_any_size(tmp_path: Path, size: int) -> None:
    pieces = [GOOD[at : at + size] for at in range(0, len(GOOD), size)]
    assert read(pieces, tmp_path / "body") == Form("x.onnx", {"model_id": "bge"})
    assert (tmp_path / "body").read_bytes() == b"\r\n--content--b"


def test_a_file_may_come_before_the_text(tmp_path: Path) -> None:
    body = part("file", b"x", "x.onnx") + part("pinned", b"true") + part("device", b"") + END
    assert read([body], tmp_path / "b") == Form("x.onnx", {"pinned": "true", "device": ""})


def test_a_large_file_takes_no_memory(tmp_path: Path) -> None:
    def pieces() -> Iterable[bytes]:
        yield GOOD.removesuffix(END) + b'--b\r\ncontent-disposition: form-data; name="x"\r\n\r\n'
        yield b"\r\n" + END

    def large() -> Iterable[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x.onnx"\r\n\r\n'
        for _ in range(256):
            yield bytes(256 * 1024)
        yield b"\r\n" + END

    assert read(pieces(), tmp_path / "a").fields == {"model_id": "bge", "x": ""}
    tracemalloc.start()
    read(large(), tmp_path / "b", most_bytes=64 * MIB)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "b").stat().st_size == 64 * MIB
    assert most_bytes < 4 * MIB


WRONG: dict[str, tuple[bytes, type[SnoozeError], str]] = {
    "nothing": (b"", InvalidInput, "ends before its last boundary"),
    "no file": (part("model_id", b"x") + END, InvalidInput, "no part named file"),
    "cut off": (GOOD[:-4], InvalidInput, "ends before its last boundary"),
    "cut off in the file": (GOOD[: len(GOOD) // 2], InvalidInput, "ends before"),
    "two files": (
        part("file", b"x", "a") + part("file", b"x", "b") + END,
        InvalidInput,
        "more than one part named 'file'",
    ),
    "a field twice": (
        part("x", b"1") + part("x", b"1") + END,
        InvalidInput,
        "more than one part named 'x'",
    ),
    "no form": (b"GET / HTTP/1.1", InvalidInput, "malformed"),
    "no disposition": (b"--b\r\nA: b\r\n\r\nx\r\n--b--\r\n", InvalidInput, "has no name in its"),
    "no name": (
        b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n",
        InvalidInput,
        "has no name in its",
    ),
    "not UTF-8": (part("description", b"\xff") + END, InvalidInput, "description is not UTF-8"),
    "many parts": (b"".join(part(str(n), b"") for n in range(65)), InvalidInput, "64 parts"),
    "much text": (part("d", bytes(70_000)) + END, PayloadTooLarge, "limit of 65536 bytes"),
    "large": (part("file", bytes(MIB + 1), "x") + END, PayloadTooLarge, "limit of 1048576 bytes"),
    "large headers": (b"--b\r\nA: " + bytes(10_000), InvalidInput, "malformed"),
    "large tail": (GOOD + bytes(3 * MIB), PayloadTooLarge, "the form is larger"),
}


@pytest.mark.parametrize(("body", "error", "why"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("size", [1000, 4 * MIB])
def test_what_is_no_good_form(
    tmp_path: Path, body: bytes, error: type[SnoozeError], why: str, size: int
) -> None:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    with pytest.raises(error) as refusal:
        read(pieces, tmp_path / "body")
    assert why in refusal.value.message


def test_a_client_that_falls_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_form, "_SILENCE_S", 0.01)

    async def body() -> AsyncIterator[bytes]:
        yield GOOD[:50]
        await asyncio.Event().wait()

    with pytest.raises(DeadlineExceeded, match=r"nothing came for 0\.01 s"):
        asyncio.run(read_form(TYPE, body(), tmp_path / "body", MIB))


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/mixed; boundary=b"])
def test_other_media_types(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="send multipart/form-data with a part named"):
        read([GOOD], tmp_path / "body", kind)


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", f"multipart/form-data; boundary={'x' * 999}"]
)
def test_unusable_boundaries(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidInput, match="no usable boundary"):
        read([GOOD], tmp_path / "body", kind)
