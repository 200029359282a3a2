"""A daemon for tests of `/v2`: a model of each datatype, and what a client of it needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import TensorProto

import models
from e2e.daemon import Daemon
from python_models import python_model

DTYPES: Final[dict[str, Any]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
"""Every datatype of ONNX Runtime's CPU kernels but BYTES; each names a model that gives it back."""

_ONNX: Final = {"BOOL": "BOOL", "FP16": "FLOAT16", "FP32": "FLOAT", "FP64": "DOUBLE"}

SETTINGS: Final = "[server]\nmax_request_bytes = {limit}\n[defaults]\nidle_timeout_secs = 0\n"


def some_values(datatype: str) -> Any:
    """Two rows of three, with the ends of the datatype's range among them."""
    dtype = np.dtype(DTYPES[datatype])
    if dtype.kind == "b":
        return np.array([[True, False, True], [False, False, True]])
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array([[limits.min, limits.max, 0], [1, 2, 3]], dtype)


@contextmanager
def serving(folder: Path, cache_dir: Path, limit: int = 64 * 1024 * 1024) -> Iterator[Daemon]:
    """`iris` has two outputs, `text` gives strings back, `number` a scalar, `open` doubles `x`."""
    for datatype in DTYPES:
        number = TensorProto.DataType.Value(_ONNX.get(datatype, datatype))
        models.identity_model(folder / f"{datatype}.onnx", datatype=number)
    models.linear_model(folder / "iris.onnx")
    models.string_model(folder / "text.onnx")
    models.scalar_model(folder / "number.onnx")
    models.fixed_batch_model(folder / "image.onnx")
    models.identity_model(folder / "é n.onnx")
    python_model(folder / "open")
    (folder / "models.toml").write_text(SETTINGS.format(limit=limit))
    with Daemon(folder, cache_dir) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr
