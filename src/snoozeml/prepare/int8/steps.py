"""How numbers become 8-bit integers.

Each row of a layer's input is scaled by its own largest value, each row of its matrix once and for
all; the product of integers is exact and scaled back. Before that, columns of the input with large
values share their size with the matrix, which can take it (SmoothQuant, Xiao et al. 2022,
https://arxiv.org/abs/2211.10438); and inputs that are hardly ever negative, such as what a GELU
gives, are moved above zero, so that none of the 256 steps is lost.
"""

from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from snoozeml.prepare.int8.watching import Seen
from snoozeml.wire.tensors import Array

TINY: Final = 1e-12
"""Stands for 0 where something is divided by it."""

_MOSTLY_POSITIVE: Final = 0.1
"""A lowest value of at most this share of the highest one is worth moving above zero."""

_SMALLEST_SHARE: Final = 1e-3  # columns that are never used must not get a factor without bound


class Step(NamedTuple):
    """How the input of some layers becomes integers.

    Attributes:
        factor: (columns,); what each column is multiplied with, after `shift` has been added.
        zero: the integer that stands for 0: 128, or 0 where no number is below it.
    """

    factor: Array
    shift: float
    zero: int


def plan_step(seen: Seen, matrices: list[Array]) -> Step:
    """Decide for layers that share an input. Shapes: matrices: (out, in)"""
    lowest, highest = float(seen.lowest.min()), float(seen.highest.max())
    is_positive = -lowest <= _MOSTLY_POSITIVE * highest
    shift = max(0.0, -lowest) if is_positive else 0.0
    size = np.maximum(np.abs(seen.lowest + shift), np.abs(seen.highest + shift))
    weight = np.max([np.abs(matrix).max(0) for matrix in matrices], axis=0)
    factor = np.sqrt(_bounded(weight) / _bounded(size))
    even: Array = factor / np.exp(np.log(factor).mean())
    return Step(even.astype(np.float32), shift, 0 if is_positive else 128)


def quantise_matrix(matrix: Array, step: Step) -> tuple[Array, Array]:
    """Integers, and what they are multiples of in each row.

    Shapes:
        matrix: (out, in); returns: (out, in) int8, (out,) float32
    """
    even = matrix / step.factor
    scales = np.maximum(np.abs(even).max(1), TINY) / _largest_integer()
    return np.round(even / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def harm(rows: Array, matrix: Array, step: Step) -> float:
    """How far the product in integers is off, relative to its size. Shapes: rows: (rows, in)"""
    exact = rows @ matrix.T
    moved = (rows + step.shift) * step.factor
    scales = np.maximum(np.abs(moved).max(1, keepdims=True), TINY) / (255 - step.zero)
    integers, matrix_scales = quantise_matrix(matrix, step)
    products = np.round(moved / scales) @ integers.T.astype(np.float32)
    answer = products * scales * matrix_scales - step.shift * matrix.sum(1)
    return float(np.linalg.norm(answer - exact) / max(float(np.linalg.norm(exact)), TINY))


def _bounded(sizes: Array) -> Array:
    largest = float(sizes.max())
    return np.maximum(sizes, _SMALLEST_SHARE * largest + TINY)


@cache
def _largest_integer() -> int:
    """Of a matrix. An x86 without VNNI adds products up in 16 bits, which overflow with all 8."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return 127
    is_x86 = "\nflags" in flags
    return 127 if not is_x86 or "avx512_vnni" in flags or "avx_vnni" in flags else 63
