"""What `snooze upload` sends is what the daemon reads."""

import asyncio
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snoozeml.cli.forms import Form, form_of_file, form_of_folder
from snoozeml.core.unpacking import UnpackJob
from snoozeml.fronts.http import upload_form
from snoozeml.prepare.unpack.archive import unpack

FIELDS = {"model_id": "日本語", "description": 'a "b"\r\n--c'}


def received(form: Form, target: Path) -> tuple[upload_form.Form, int]:
    """What the daemon makes of it, and how many bytes have come."""
    pieces = list(form.pieces)

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    read = asyncio.run(upload_form.read_form(form.content_type, body(), target, 2**30))
    return read, sum(map(len, pieces))


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 5000])
def test_a_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / 'my "model".onnx'
    file.write_bytes(content)
    form = form_of_file(file, FIELDS)
    read, size_bytes = received(form, tmp_path / "body")
    assert read == upload_form.Form("my %22model%22.onnx", FIELDS)
    assert (tmp_path / "body").read_bytes() == content
    assert size_bytes == form.length_bytes


def test_a_folder(tmp_path: Path) -> None:
    contents = {"config.json": b"{}", "é/模.safetensors": bytes(3_000_000), "empty": b""}
    files = {}
    for number, (name, content) in enumerate(contents.items()):
        files[name] = tmp_path / str(number)
        files[name].write_bytes(content)
    read, _ = received(form_of_folder(files, FIELDS), tmp_path / "body")
    assert read == upload_form.Form("model.zip", FIELDS)
    assert zipfile.ZipFile(tmp_path / "body").testzip() is None
    unpack(UnpackJob(archive=str(tmp_path / "body"), folder=str(tmp_path / "m"), most_bytes=2**30))
    assert {name: (tmp_path / "m" / name).read_bytes() for name in contents} == contents
