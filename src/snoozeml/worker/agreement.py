"""When an answer from a batch counts as equal to the same request run alone."""

from typing import Final

import numpy as np

from snoozeml.wire.tensors import Array

_TOLERANCE: Final = {2: 1e-2, 4: 1e-3, 8: 1e-7}
"""Bytes of a float → how far rounding may carry it, relative to the largest value of the answer.

Libraries add numbers up in another order for another number of rows. Rows that were mixed up, or
that influenced each other, are off by as much as rows differ.
"""


def agree(batched: Array, alone: Array) -> bool:
    """Whether both are the same answer.

    Floats may differ by rounding. Integers, truth values and text must be equal: a label that flips
    at a tie looks like an error, and taking it for one costs speed but never a wrong answer.
    """
    if batched.shape != alone.shape:
        return False
    if alone.dtype.kind != "f":
        return np.array_equal(batched, alone)
    finite = np.abs(alone[np.isfinite(alone)])
    tolerance = _TOLERANCE[alone.dtype.itemsize] * float(finite.max(initial=0.0))
    return np.allclose(batched, alone, rtol=0.0, atol=tolerance, equal_nan=True)
