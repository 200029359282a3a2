"""Where a model keeps tensors outside its own file, and that it is nowhere it should not be.

An ONNX file may name any path as the place of a tensor's data. Everything that opens a model
follows these paths, so they are checked first, by names and `stat` alone: what lies outside the
model's own folder is never opened.
"""

import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from onnx import ModelProto, TensorProto

from snoozeml.core.paths import without_folders
from snoozeml.errors import ModelFailed


def external_files(model: ModelProto, folder: Path) -> list[Path]:
    """The data files that a model refers to, each once, every reference checked.

    Args:
        model: as parsed from its file, with no external data loaded.
        folder: absolute folder of the model file.

    Raises:
        ModelFailed: a reference leaves the folder, or is to something that is not a regular file
            or does not reach as far as the reference says.
    """
    outside = (tensor for tensor in tensors(model) if _is_external(tensor))
    return sorted({_checked_file(tensor, folder) for tensor in outside})


def tensors(message: Any) -> Iterator[TensorProto]:
    """Every tensor in a message, however deep.

    Walks all fields that the schema has rather than a list of known places, so that no place
    (subgraphs, functions, sparse tensors, attributes) can be forgotten.
    """
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in value if field.is_repeated else (value,):
            if isinstance(part, TensorProto):
                yield part
            else:
                yield from tensors(part)


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL or len(tensor.external_data) > 0


def _checked_file(tensor: TensorProto, folder: Path) -> Path:
    fields: dict[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    if not isinstance(location, str):  # protobuf hands out bytes where they are no UTF-8
        raise ModelFailed(f"tensor {tensor.name!r} keeps its data in a file whose name is no text")
    wrong = (
        _why_ambiguous(tensor)
        or _why_bad_location(location)
        or _why_bad_file(location, folder)
        or _why_bad_range(fields, (folder / location).stat().st_size)
    )
    if wrong:
        raise ModelFailed(
            f"tensor {tensor.name!r} keeps its data in {location!r:.120}, but {wrong}; external"
            " data must be a regular file inside the model's own folder"
        )
    return folder / location


def _why_ambiguous(tensor: TensorProto) -> str | None:
    # Readers differ on which of two entries counts, so what we check might not be what is opened.
    keys = [entry.key for entry in tensor.external_data]
    return "its description names a field twice" if len(set(keys)) < len(keys) else None


def _why_bad_location(location: str) -> str | None:
    if not location or "\0" in location:
        return "that is not a file name"
    if "*" in location:  # the engine's mark for "this is an address in memory, not a file"
        return "file names with a star are not allowed"
    if PurePosixPath(location).is_absolute():
        return "that is an absolute path"
    if ".." in PurePosixPath(location).parts:
        return "that path contains '..'"
    return None


def _why_bad_file(location: str, folder: Path) -> str | None:
    try:
        real = (folder / location).resolve(strict=True)
    except FileNotFoundError:
        return "there is no such file"
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        return f"that cannot be resolved ({without_folders(str(error), folder)})"
    if not real.is_relative_to(folder.resolve()):
        return "that is a link to outside of the folder"
    if not stat.S_ISREG(real.stat().st_mode):
        return "that is not a regular file"
    return None


def _why_bad_range(fields: dict[str, str], file_bytes: int) -> str | None:
    try:
        offset, length = int(fields.get("offset", "0")), int(fields.get("length", "0"))
    except ValueError:
        return "its offset or length is not a number"
    if offset < 0 or length < 0:
        return "its offset or length is negative"
    if offset + length > file_bytes:
        return f"bytes {offset} to {offset + length} do not exist, the file has {file_bytes}"
    return None
