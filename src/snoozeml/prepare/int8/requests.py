"""Made-up requests, to see how large a model's numbers get."""

from typing import Final

import numpy as np
from onnx import ModelProto

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.tensors import DTYPES, Array, Tensors

_ROWS: Final = 4
_LENGTHS: Final = (48, 16, 4, 2)
_TABLE_OPS: Final = frozenset({"Gather", "EmbedLayerNormalization"})


def made_up_requests(model: ModelProto, signature: Signature) -> list[Tensors]:
    """Requests of several lengths, with token ids from everywhere in the vocabulary."""
    random = np.random.default_rng(seed=0)
    bounds = _table_sizes(model)
    longest = min((s.max_length for s in signature.inputs if s.max_length), default=max(_LENGTHS))
    return [
        {
            spec.name: _values(
                random, spec, _shape(spec, min(length, longest)), bounds.get(spec.name, 2)
            )
            for spec in signature.inputs
        }
        for length in _LENGTHS
    ]


def _shape(spec: TensorSpec, length: int) -> list[int]:
    shape = [dim if isinstance(dim, int) else length for dim in spec.shape]
    if spec.batch_axis is not None:
        shape[spec.batch_axis] = _ROWS
    return shape


def _values(random: np.random.Generator, spec: TensorSpec, shape: list[int], below: int) -> Array:
    dtype = DTYPES[spec.datatype]
    if spec.default is not None:
        return np.full(shape, spec.default == "ones", dtype)
    if dtype.kind == "f":
        return random.normal(size=shape).astype(dtype)
    first, end = spec.bounds or (0, below)
    return random.integers(first, end, shape).astype(dtype)


def _table_sizes(model: ModelProto) -> dict[str, int]:
    """By graph input: how many rows the table has that the input's values are indices of."""
    rows = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    sizes: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in _TABLE_OPS and node.input[0] in rows:
            sizes[node.input[1]] = rows[node.input[0]]
    return sizes
