"""Rows of tensors: counting, comparing, joining and cutting them along their batch axes.

Requests to a model with ragged axes may differ in length. They are padded to the longest when they
are joined, and outputs with the same axis are cut back to the length of each.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import numpy as np

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.tensors import DTYPES, Array, Tensors


class OutputWithoutRows(Exception):
    """An output does not carry one row for each row that went in; we never guess whose a row is."""


class Measures(NamedTuple):
    """What a batch wants to know of a request.

    Attributes:
        rows: that it has; 0: it can be answered without a run.
        batch_key: requests with the same key may share a batch; None: this one shares with nobody.
        length: of each row, in tokens; 0 where the model knows no such thing.
    """

    rows: int
    batch_key: Hashable | None
    length: int


class RowLayout:
    """Knows along which axes each tensor of a model carries its rows and their lengths.

    Inputs of a group that a request has left out are missing in its tensors here.

    Attributes:
        looks_at_shapes_only: requests whose inputs have the same shapes have the same measures.
    """

    def __init__(self, signature: Signature) -> None:
        inputs = signature.inputs
        self._inputs: Final = inputs
        self._axes: Final = [(s, s.batch_axis) for s in inputs if s.batch_axis is not None]
        # Within a group all inputs have equally many rows, and so the first one tells.
        groups = {spec.group: (spec.name, axis) for spec, axis in reversed(self._axes)}
        self._counted: Final = list(groups.values())
        lengths = {s.shape[r]: (s.name, r) for s in inputs if (r := s.ragged_axis) is not None}
        self._measured: Final = list(lengths.values())
        self._masks: Final = [
            (s.name, r) for s in inputs if (r := s.ragged_axis) is not None and s.default == "ones"
        ]
        self._absent: Final = {s.name: _empty(s, {}, otherwise=1) for s in inputs if s.group}
        self._outputs: Final = {spec.name: spec for spec in signature.outputs}
        self._rowless: Final = {s.name for s in signature.outputs if s.batch_axis is None}
        self._rows_first: Final = {
            s.name for s in signature.outputs if s.batch_axis == 0 and s.ragged_axis is None
        }
        self.looks_at_shapes_only: Final = len(self._axes) == len(inputs) and not self._masks
        self._lengths: Final = {
            s.name: (r, *lengths[s.shape[r]])
            for s in signature.outputs
            if (r := s.ragged_axis) is not None
        }

    def measure(self, inputs: Tensors, outputs: Sequence[str]) -> Measures:
        """Measure a request for these outputs."""
        rows, key = self.count(inputs), self.batch_key(inputs, outputs)
        return Measures(rows if key is not None else max(rows, 1), key, self.length(inputs))

    def count(self, inputs: Tensors) -> int:
        """Rows of a request; a model without a batch axis takes one of whatever it takes."""
        if len(self._counted) > 1:
            return max(self._counts(inputs), default=1)
        for name, axis in self._counted:
            rows: int = inputs[name].shape[axis]
            return rows
        return 1

    def length(self, inputs: Tensors) -> int:
        """Tokens in each row of a request; 0 where the model knows no such thing."""
        if not self._measured:
            return 0
        sizes = [inputs[name].shape[axis] for name, axis in self._measured if name in inputs]
        return max(sizes, default=0)

    def batch_key(self, inputs: Tensors, outputs: Sequence[str]) -> Hashable | None:
        """Requests with the same key may share a batch; None: this request shares with nobody.

        Parameters of a request are no part of it, because none changes what a graph computes.
        """
        if not self._axes or not self._rowless.isdisjoint(outputs):
            return None
        if len(self._counted) > 1 and len(set(self._counts(inputs))) > 1:
            return None  # its groups have different numbers of rows
        may_be_padded = not self._measured or self._may_be_padded(inputs)
        return (
            tuple(outputs),
            *[_input_key(spec, inputs.get(spec.name), may_be_padded) for spec in self._inputs],
        )

    def merge(self, requests: Sequence[Tensors]) -> Tensors:
        """Join requests with the same batch key; tensors without rows are equal in all of them."""
        merged = dict(requests[0])
        for spec, axis in self._axes:
            if spec.name in merged:
                merged[spec.name] = _joined(spec, axis, [inputs[spec.name] for inputs in requests])
        return merged

    def complete(self, inputs: Tensors) -> Tensors:
        """Give every input of a left-out group a tensor without rows, for the engine."""
        return {**self._absent, **inputs} if self._absent else inputs

    def cut(self, inputs: Tensors, start: int, stop: int) -> Tensors:
        """Rows `start` to `stop` of a request."""
        piece = dict(inputs)
        for spec, axis in self._axes:
            if spec.name in piece:
                piece[spec.name] = _slice(inputs[spec.name], axis, start, stop)
        return piece

    def spans(
        self, names: Sequence[str], outputs: Sequence[Array], rows: Sequence[int]
    ) -> list[slice] | None:
        """Where the rows of each request lie on axis 0 of all outputs of one run.

        Args:
            names: of `outputs`, in the same order.
            rows: of what was merged, in that order.

        Returns:
            None: somewhere else; `split` knows.

        Raises:
            OutputWithoutRows: an output has another number of rows.
        """
        if not self._rows_first.issuperset(names):
            return None
        stops = list(accumulate(rows, initial=0))
        for name, output in zip(names, outputs, strict=True):
            self._axis_of(name, output, stops[-1])
        return [slice(*span) for span in pairwise(stops)]

    def split(
        self, names: Sequence[str], outputs: Sequence[Array], requests: Sequence[Tensors]
    ) -> list[list[Array]]:
        """Cut the outputs of one run into those of each request.

        Args:
            names: of `outputs`, in the same order.
            requests: what was merged, in that order.

        Shapes:
            outputs: on the batch axis as long as all requests together, on a ragged axis as long as
                the longest of them.
            returns: per request one array per output; views, nothing is copied.

        Raises:
            OutputWithoutRows: an output has another number of rows, or another length.
        """
        stops = list(accumulate([self.count(inputs) for inputs in requests], initial=0))
        answers: list[list[Array]] = [[] for _ in requests]
        for name, output in zip(names, outputs, strict=True):
            axis = self._axis_of(name, output, stops[-1])
            ahead = (slice(None),) * axis
            parts = [output[(*ahead, slice(*span))] for span in pairwise(stops)]
            if name in self._lengths:
                parts = self._unpadded(name, parts, requests)
            for answer, part in zip(answers, parts, strict=True):
                answer.append(part)
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
            if spec.name in inputs
            for dim, size in zip(spec.shape, inputs[spec.name].shape, strict=True)
            if isinstance(dim, str)
        }
        return [_empty(self._outputs[name], sizes, otherwise=0) for name in outputs]

    def _counts(self, inputs: Tensors) -> list[int]:
        """The number of rows of each group that is there."""
        return [inputs[name].shape[axis] for name, axis in self._counted if name in inputs]

    def _may_be_padded(self, inputs: Tensors) -> bool:
        """Whether every row has a token that counts.

        A row without one gets an answer that depends on its length, as attention to nothing is
        attention to everything; so it may share a batch only with rows of the same length.
        """
        if any(inputs[name].shape[axis] == 0 for name, axis in self._measured if name in inputs):
            return False
        return all(inputs[name].any(axis).all() for name, axis in self._masks if name in inputs)

    def _axis_of(self, name: str, output: Array, rows: int) -> int:
        axis = self._outputs[name].batch_axis
        if axis is None or output.shape[axis : axis + 1] != (rows,):
            raise OutputWithoutRows(
                f"output {name!r} has the shape {list(output.shape)} for {rows} rows"
            )
        return axis

    def _unpadded(
        self, name: str, parts: Sequence[Array], requests: Sequence[Tensors]
    ) -> list[Array]:
        axis, input_name, input_axis = self._lengths[name]
        lengths = [inputs[input_name].shape[input_axis] for inputs in requests]
        if parts[0].shape[axis : axis + 1] != (max(lengths),):
            raise OutputWithoutRows(
                f"output {name!r} has rows of the shape {list(parts[0].shape)} for inputs padded to"
                f" {max(lengths)}"
            )
        return [_slice(part, axis, 0, n) for part, n in zip(parts, lengths, strict=True)]


def _input_key(spec: TensorSpec, array: Array | None, may_be_padded: bool) -> Hashable:
    if array is None:
        return None
    shape, axis = array.shape, spec.batch_axis
    if axis is None:
        return shape, tuple(array.flat) if array.dtype.hasobject else array.tobytes()
    if spec.ragged_axis is None or not may_be_padded:
        return shape[:axis] + shape[axis + 1 :]
    free = (axis, spec.ragged_axis)
    return tuple([size for axis, size in enumerate(shape) if axis not in free])


def _joined(spec: TensorSpec, batch_axis: int, arrays: Sequence[Array]) -> Array:
    ragged_axis = spec.ragged_axis
    if ragged_axis is None:
        return np.concatenate(arrays, batch_axis)
    longest = max(array.shape[ragged_axis] for array in arrays)
    return np.concatenate([_padded(a, ragged_axis, longest, spec.fill) for a in arrays], batch_axis)


def _padded(array: Array, axis: int, length: int, fill: int) -> Array:
    missing = length - array.shape[axis]
    if not missing:
        return array
    shape = (*array.shape[:axis], missing, *array.shape[axis + 1 :])
    return np.concatenate([array, np.full(shape, fill, array.dtype)], axis)


def _slice(array: Array, axis: int, start: int, stop: int) -> Array:
    return array[(slice(None),) * axis + (slice(start, stop),)]


def _empty(spec: TensorSpec, sizes: Mapping[str, int], otherwise: int) -> Array:
    """A tensor without rows; other dimensions that are neither fixed nor in `sizes` are as said."""
    shape = [dim if isinstance(dim, int) else sizes.get(dim or "", otherwise) for dim in spec.shape]
    if spec.batch_axis is not None:
        shape[spec.batch_axis] = 0
    return np.zeros(shape, DTYPES[spec.datatype])
