"""Rows of tensors: counting, comparing, joining and cutting them along their batch axes."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import numpy as np

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.tensors import DTYPES, Array, Tensors


class OutputWithoutRows(Exception):
    """An output does not carry one row for each row that went in; we never guess whose a row is."""


class RowLayout:
    """Knows along which axis each tensor of a model carries its rows."""

    def __init__(self, signature: Signature) -> None:
        self._inputs: Final = signature.inputs
        self._axes: Final = [
            (spec.name, spec.batch_axis) for spec in signature.inputs if spec.batch_axis is not None
        ]
        self._outputs: Final = {spec.name: spec for spec in signature.outputs}

    def count(self, inputs: Tensors) -> int:
        """Rows of a request; a model without a batch axis takes one of whatever it takes."""
        for name, axis in self._axes:
            rows: int = inputs[name].shape[axis]
            return rows
        return 1

    def batch_key(self, inputs: Tensors, outputs: Sequence[str]) -> Hashable | None:
        """Requests with the same key may share a batch; None: this request shares with nobody.

        Parameters of a request are no part of it, because none changes what a graph computes.
        """
        if not self._axes or any(self._outputs[name].batch_axis is None for name in outputs):
            return None
        return (
            tuple(outputs),
            *[_input_key(spec.batch_axis, inputs[spec.name]) for spec in self._inputs],
        )

    def merge(self, requests: Sequence[Tensors]) -> Tensors:
        """Join requests with the same batch key; tensors without rows are equal in all of them."""
        merged = dict(requests[0])
        for name, axis in self._axes:
            merged[name] = np.concatenate([inputs[name] for inputs in requests], axis)
        return merged

    def cut(self, inputs: Tensors, start: int, stop: int) -> Tensors:
        """Rows `start` to `stop` of a request."""
        piece = dict(inputs)
        for name, axis in self._axes:
            piece[name] = _slice(inputs[name], axis, start, stop)
        return piece

    def split(
        self, names: Sequence[str], outputs: Sequence[Array], rows_per_request: Sequence[int]
    ) -> list[list[Array]]:
        """Cut the outputs of one run into those of each request.

        Args:
            names: of `outputs`, in the same order.
            rows_per_request: rows that each request contributed, in the order they were merged.

        Shapes:
            outputs: sum(rows_per_request) long on each output's batch axis.
            returns: per request one array per output; views, nothing is copied.

        Raises:
            OutputWithoutRows: an output has another number of rows.
        """
        axes = [
            self._axis_of(name, array, sum(rows_per_request))
            for name, array in zip(names, outputs, strict=True)
        ]
        answers, start = [], 0
        for rows in rows_per_request:
            stop = start + rows
            answers.append(
                [
                    _slice(array, axis, start, stop)
                    for array, axis in zip(outputs, axes, strict=True)
                ]
            )
            start = stop
        return answers

    def join(
        self, names: Sequence[str], pieces: Sequence[Sequence[Array]], rows: Sequence[int]
    ) -> list[Array]:
        """Put the outputs of consecutive pieces of one request together again.

        Args:
            pieces: per piece one array per name.
            rows: of each piece.

        Raises:
            OutputWithoutRows: an output of a piece has another number of rows than went in.
        """
        joined = []
        for index, name in enumerate(names):
            arrays = [piece[index] for piece in pieces]
            axes = [self._axis_of(name, array, n) for array, n in zip(arrays, rows, strict=True)]
            joined.append(np.concatenate(arrays, axes[0]))
        return joined

    def empty(self, inputs: Tensors, outputs: Sequence[str]) -> list[Array]:
        """The answer to a request without rows; every output has a batch axis.

        Other dimensions are those of the signature, or of an input with the same symbol, or 0.
        """
        sizes = {
            dim: size
            for spec in self._inputs
            for dim, size in zip(spec.shape, inputs[spec.name].shape, strict=True)
            if isinstance(dim, str)
        }
        return [_empty(self._outputs[name], sizes) for name in outputs]

    def _axis_of(self, name: str, output: Array, rows: int) -> int:
        axis = self._outputs[name].batch_axis
        if axis is None or output.shape[axis : axis + 1] != (rows,):
            raise OutputWithoutRows(
                f"output {name!r} has the shape {list(output.shape)} for {rows} rows"
            )
        return axis


def _input_key(batch_axis: int | None, array: Array) -> Hashable:
    shape = array.shape
    if batch_axis is not None:
        return shape[:batch_axis] + shape[batch_axis + 1 :]
    return shape, tuple(array.flat) if array.dtype.hasobject else array.tobytes()


def _slice(array: Array, axis: int, start: int, stop: int) -> Array:
    return array[(slice(None),) * axis + (slice(start, stop),)]


def _empty(spec: TensorSpec, sizes: Mapping[str, int]) -> Array:
    shape = [dim if isinstance(dim, int) else sizes.get(dim or "", 0) for dim in spec.shape]
    if spec.batch_axis is not None:
        shape[spec.batch_axis] = 0
    return np.empty(shape, DTYPES[spec.datatype])
