"""The tensors of a safetensors checkpoint: where in which file each of them lies.

The format: eight bytes with the length of a JSON header, the header, then the data. Only headers
are read here; https://huggingface.co/docs/safetensors describes them.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np

from snoozeml.errors import ModelFailed
from snoozeml.wire.tensors import Array

INDEX_FILE: Final = "model.safetensors.index.json"
_USUAL_FILE: Final = "model.safetensors"
_LARGEST_HEADER_BYTES: Final = 100_000_000  # the format's own limit
_LENGTH_BYTES: Final = 8

_ITEM_BYTES: Final = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}

_MOST_AXES: Final = 8

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Shape = Annotated[tuple[_Count, ...], msgspec.Meta(max_length=_MOST_AXES)]


class _Entry(msgspec.Struct, frozen=True):
    """A tensor as the header describes it; offsets count from the end of the header."""

    dtype: str
    shape: _Shape
    data_offsets: tuple[_Count, _Count]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class StoredTensor(NamedTuple):
    """Where a tensor lies.

    Attributes:
        file: absolute path without links: the engine follows none out of the weights' folder.
        offset: in bytes from the file's beginning.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length_bytes: int

    def read(self) -> Array:
        """The tensor in float32; types of half the width lose nothing by that.

        Raises:
            ModelFailed: it holds no floating-point numbers.
        """
        count = math.prod(self.shape)
        stored = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}.get(self.dtype)
        if stored is None:
            raise ModelFailed(
                f"{self.file.name} has weights of type {self.dtype}; supported: F64, F32, F16, BF16"
            )
        flat: Array = np.fromfile(self.file, stored, count, offset=self.offset)
        if self.dtype == "BF16":  # the upper half of a float32
            return (flat.astype("<u4") << 16).view("<f4").reshape(self.shape)
        return flat.astype(np.float32, copy=False).reshape(self.shape)


def read_checkpoint(files: list[Path]) -> dict[str, StoredTensor]:
    """All tensors of some files, by name.

    Raises:
        ModelFailed: a file is not safetensors, or claims what it does not hold.
        OSError: a file cannot be read.
    """
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        tensors |= _read_file(file)
    return tensors


def weight_files(path: Path) -> list[Path]:
    """The files that make up a checkpoint.

    Args:
        path: the model's folder, or one safetensors file in it.

    Raises:
        ModelFailed: there is none, or it is not clear which of several are meant.
    """
    if path.is_file():
        return [path]
    if (path / INDEX_FILE).is_file():
        return _shards(path)
    files = sorted(file for file in path.glob("[!.]*.safetensors") if file.is_file())
    if path / _USUAL_FILE in files:
        return [path / _USUAL_FILE]
    if len(files) == 1:
        return files
    if not files:
        raise ModelFailed(f"there is no safetensors file in {path.name}")
    names = ", ".join(file.name for file in files)
    raise ModelFailed(
        f"{path.name} has several safetensors files ({names}) and no {INDEX_FILE} that says which"
        " belong together; name one as the model's path"
    )


def _shards(folder: Path) -> list[Path]:
    try:
        index = msgspec.json.decode((folder / INDEX_FILE).read_bytes(), type=_Index)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFailed(f"{INDEX_FILE} is not an index of shards: {error}") from None
    names = sorted(set(index.weight_map.values()))
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelFailed(f"{INDEX_FILE} names {name!r}, which is no file in {folder.name}")
    return [folder / name for name in names]


def _read_file(file: Path) -> dict[str, StoredTensor]:
    header, data_start = _read_header(file)
    data_bytes = file.stat().st_size - data_start
    tensors, real = {}, file.resolve()
    for name, raw in header.items():
        if name == "__metadata__":
            continue
        try:
            entry = msgspec.json.decode(raw, type=_Entry)
        except msgspec.MsgspecError as error:
            raise ModelFailed(f"{file.name}: tensor {name!r}: {error}") from None
        _check(file, name, entry, data_bytes)
        start, end = entry.data_offsets
        tensors[name] = StoredTensor(
            real, entry.dtype, entry.shape, data_start + start, end - start
        )
    _check_overlaps(file, tensors)
    return tensors


def _read_header(file: Path) -> tuple[dict[str, msgspec.Raw], int]:
    """The header by tensor name, and where the data begins."""
    with file.open("rb") as content:
        size_bytes = file.stat().st_size
        length = int.from_bytes(content.read(_LENGTH_BYTES), "little")
        if not 2 <= length <= min(_LARGEST_HEADER_BYTES, size_bytes - _LENGTH_BYTES):
            raise ModelFailed(
                f"{file.name} is not a safetensors file, or only part of one: it has {size_bytes}"
                f" bytes and claims a header of {length}"
            )
        try:
            header = msgspec.json.decode(content.read(length), type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ModelFailed(f"{file.name} has no readable header: {error}") from None
    return header, _LENGTH_BYTES + length


def _check(file: Path, name: str, entry: _Entry, data_bytes: int) -> None:
    """Raises ModelFailed: a tensor's type, shape and place in the file contradict each other."""
    start, end = entry.data_offsets
    if entry.dtype not in _ITEM_BYTES:
        raise ModelFailed(f"{file.name}: tensor {name!r} has the unknown type {entry.dtype!r}")
    if not start <= end <= data_bytes:
        raise ModelFailed(
            f"{file.name}: tensor {name!r} is said to be at bytes {start} to {end} of the data,"
            f" which has {data_bytes}; the file may be only partly downloaded"
        )
    wanted = math.prod(entry.shape) * _ITEM_BYTES[entry.dtype]
    if wanted != end - start:
        raise ModelFailed(
            f"{file.name}: tensor {name!r} of type {entry.dtype} and shape {list(entry.shape)}"
            f" needs {wanted} bytes and has {end - start}"
        )


def _check_overlaps(file: Path, tensors: dict[str, StoredTensor]) -> None:
    """Raises ModelFailed: two tensors share bytes."""
    in_order = sorted(tensors.items(), key=lambda item: item[1].offset)
    for (name, tensor), (other, next_tensor) in pairwise(in_order):
        if tensor.offset + tensor.length_bytes > next_tensor.offset:
            raise ModelFailed(f"{file.name}: tensors {name!r} and {other!r} overlap")
