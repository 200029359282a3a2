"""Reads and writes safetensors files, right ones and wrong ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from snoozeml.prepare.safetensors.checkpoint import read_checkpoint
from snoozeml.wire.tensors import Array


def read(file: Path) -> dict[str, Array]:
    return {name: tensor.read() for name, tensor in read_checkpoint([file]).items()}


def write(file: Path, tensors: Mapping[str, Array], dtype: str | None = None) -> None:
    """Args: dtype: converts all; None: float32 and int64 as they are."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = dtype or {"f": "F32", "i": "I64"}[tensor.dtype.kind]
        raw = _encode(tensor, kind)
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": offsets}
        data += raw
    write_raw(file, header, data)


def write_raw(file: Path, header: Mapping[str, Any] | bytes, data: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the usual writers align the data, too
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _encode(tensor: Array, dtype: str) -> bytes:
    if dtype == "BF16":  # rounded to nearest: half of what is cut off is added first
        bits = np.ascontiguousarray(tensor, np.float32).view(np.uint32)
        return ((bits + 0x8000) >> 16).astype("<u2").tobytes()
    return tensor.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8"}[dtype]).tobytes()
