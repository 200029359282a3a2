"""The parsers of what is uploaded, up to the folder that an archive becomes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from hypothesis import strategies as st

from archives import named, zipped
from fuzz.mutations import Json
from fuzz.subject import MIB, Subject, binary, document, text, weighted
from snoozeml.core.unpacking import UnpackJob
from snoozeml.fronts.http.upload_form import read_form
from snoozeml.prepare.unpack.archive import unpack
from snoozeml.serving.uploads.wish import FIELDS, read_wish

_FORM: Final = (
    b'--b\r\nContent-Disposition: form-data; name="model_id"\r\n\r\nbge\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="m.onnx"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n\r\n--content--b\r\n--b--\r\n"
)


def _read_form(form: tuple[bytes, int, bytes], folder: Path) -> None:
    body, size, kind = form

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    target = folder / "body"
    target.unlink(missing_ok=True)
    read = asyncio.run(read_form(kind.decode("latin-1"), pieces(), target, MIB))
    read_wish(read.fields, read.file_name)


_FORMS: Final = st.tuples(
    text(_FORM),
    st.sampled_from([7, 64, 10_000]),
    weighted(
        (9, st.just(b"multipart/form-data; boundary=b")),
        (1, text(b"multipart/form-data; boundary=b")),
    ),
)

_WISH: Final = {
    "model_id": "bge", "overwrite": "true", "pinned": "false", "max_batch_size": "16",
    "max_batch_delay_ms": "2.5", "device": "cpu", "description": "é", "routing_strategy": "random",
}  # fmt: skip


def _read_wish(fields: Json, _: Path) -> None:
    if isinstance(fields, dict):
        wish = read_wish({str(key): str(value) for key, value in fields.items()}, "m.zip")
        place = Path("/models", wish.model_id)
        assert place.parent == Path("/models")
        assert place.name == wish.model_id
        assert set(wish.settings) < set(FIELDS)


_FILES: Final[Json] = {
    "files": [
        {"name": "top/config.json", "mode": 0o100644, "flags": 0, "content": "{}"},
        {"name": "top/sub/model.onnx", "mode": 0o100644, "flags": 0, "content": "x" * 99},
        {"name": "top/", "mode": 0o40755, "flags": 0, "content": ""},
    ]
}


def _archive(document: Json) -> bytes:
    try:
        return zipped(
            (
                named(f["name"], mode=f["mode"] & 0xFFFF, flags=f["flags"] & 0xFFFF),
                f["content"].encode("utf-8", "replace"),
            )
            for f in document["files"]
        )
    except (TypeError, KeyError, AttributeError, ValueError):
        return _PACKED


_PACKED: Final = zipped([("top/a.onnx", b"x" * 50), ("top/sub/b", bytes(5000))])
_ARCHIVES: Final = weighted((3, document(_FILES).map(_archive)), (2, binary(_PACKED)))


def _unpack(archive: bytes, folder: Path) -> None:
    """Unpack, and see that nothing appears beside the folder."""
    packed, target = folder / "packed.zip", folder / "out" / "model"
    _remove(target)
    target.parent.mkdir(exist_ok=True)
    packed.write_bytes(archive)
    try:
        unpack(UnpackJob(archive=str(packed), folder=str(target), most_bytes=MIB))
    finally:
        assert {path.name for path in folder.iterdir()} == {"packed.zip", "out"}
        assert {path.name for path in target.parent.iterdir()} <= {"model"}
    for path in target.rglob("*"):
        assert not path.is_symlink()
        assert path.is_dir() or path.is_file()


def _remove(folder: Path) -> None:
    """Faster than shutil's, which looks at each file several times."""
    if folder.exists():
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


SUBJECTS: Final = (
    Subject("forms", _FORMS, _read_form),
    Subject("fields", document(_WISH), _read_wish),
    Subject("archives", _ARCHIVES, _unpack),
)
