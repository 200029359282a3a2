"""Made-up requests, to see how large a model's numbers get."""

from typing import Final

import numpy as np

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.tensors import DTYPES, Array, Tensors

_ROWS: Final = 4
_LENGTHS: Final = (48, 16, 4, 2)


def made_up_requests(signature: Signature) -> list[Tensors]:
    """Requests of several lengths, with token ids from everywhere in the vocabulary."""
    random = np.random.default_rng(seed=0)
    longest = min((s.max_length for s in signature.inputs if s.max_length), default=max(_LENGTHS))
    return [
        {
            spec.name: _values(random, spec, _shape(spec, min(length, longest)))
            for spec in signature.inputs
        }
        for length in _LENGTHS
    ]


def _shape(spec: TensorSpec, length: int) -> list[int]:
    shape = [dim if isinstance(dim, int) else length for dim in spec.shape]
    if spec.batch_axis is not None:
        shape[spec.batch_axis] = _ROWS
    return shape


def _values(random: np.random.Generator, spec: TensorSpec, shape: list[int]) -> Array:
    dtype = DTYPES[spec.datatype]
    if spec.default is not None:
        return np.full(shape, spec.default == "ones", dtype)
    if dtype.kind == "f":
        return random.normal(size=shape).astype(dtype)
    first, end = spec.bounds or (0, 2)
    return random.integers(first, end, shape).astype(dtype)
