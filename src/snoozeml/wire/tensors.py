"""Tensors as numpy arrays, and what a decoded request is made of.

Workers and prepare import this; the daemon's side of the wire stays free of numpy.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tensors = dict[str, Array]

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(object),
}
"""The array type that holds a datatype. BYTES is an array of `str` (or `bytes`, in outputs).

BF16 is missing because numpy has no such type; an engine refuses a model that needs it.
"""

DATATYPES: Final = {dtype: datatype for datatype, dtype in DTYPES.items()}


class NamedArrays(list[Array]):
    """Outputs of a run of a model whose signature does not name them.

    Attributes:
        names: of the arrays, in their order.
    """

    def __init__(self, names: Sequence[str], arrays: Iterable[Array]) -> None:
        super().__init__(arrays)
        self.names: Final = tuple(names)


def names_of(outputs: Sequence[Array], asked: Sequence[str]) -> Sequence[str]:
    """The names of outputs: their own, or those that were asked for."""
    return outputs.names if isinstance(outputs, NamedArrays) else asked


class Inference(msgspec.Struct, gc=False):
    """A decoded request.

    Attributes:
        inputs: one array per input of the model, in the model's own datatype; inputs of a group
            that the request has left out are missing.
        outputs: names of the outputs to answer with, in that order; empty: all that an open model
            gives.
        reply_as: what else the codec that decoded it wants to know when it encodes the answer.
    """

    inputs: Tensors
    outputs: tuple[str, ...]
    reply_as: Any = None
