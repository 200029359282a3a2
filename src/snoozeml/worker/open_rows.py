"""Rows of a model that does not say what it takes or gives."""

from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from snoozeml.core.tensors import Signature
from snoozeml.wire.tensors import Array, NamedArrays, Tensors, names_of
from snoozeml.worker.rows import OutputWithoutRows, RowLayout


class OpenLayout(RowLayout):
    """Everything carries its rows along axis 0, if all inputs of a request agree on how many."""

    def count(self, inputs: Tensors) -> int:
        return _rows(inputs) or 1

    def batch_key(self, inputs: Tensors, outputs: Sequence[str]) -> Hashable | None:
        if not _rows(inputs):
            return None
        return tuple(outputs), *[
            (name, inputs[name].dtype.str, inputs[name].shape[1:]) for name in sorted(inputs)
        ]

    def merge(self, requests: Sequence[Tensors]) -> Tensors:
        return {name: np.concatenate([inputs[name] for inputs in requests]) for name in requests[0]}

    def cut(self, inputs: Tensors, start: int, stop: int) -> Tensors:
        return {name: array[start:stop] for name, array in inputs.items()}

    def spans(self, names: Sequence[str], outputs: Sequence[Array], rows: Sequence[int]) -> None:
        """Only a run shows what the outputs are called."""

    def split(
        self, names: Sequence[str], outputs: Sequence[Array], requests: Sequence[Tensors]
    ) -> list[list[Array]]:
        names = names_of(outputs, names)
        stops = list(accumulate(map(_rows, requests), initial=0))
        for name, array in zip(names, outputs, strict=True):
            _check_rows(name, array, stops[-1])
        return [
            NamedArrays(names, (array[start:stop] for array in outputs))
            for start, stop in pairwise(stops)
        ]

    def join(
        self, names: Sequence[str], pieces: Sequence[Sequence[Array]], rows: Sequence[int]
    ) -> list[Array]:
        names = names_of(pieces[0], names)
        for piece, count in zip(pieces, rows, strict=True):
            if names_of(piece, names) != names:
                raise OutputWithoutRows("outputs differ from run to run")
            for name, array in zip(names, piece, strict=True):
                _check_rows(name, array, count)
        return NamedArrays(names, map(np.concatenate, zip(*pieces, strict=True)))


def layout_of(signature: Signature) -> RowLayout:
    return OpenLayout(signature) if signature.is_open else RowLayout(signature)


def _rows(inputs: Tensors) -> int:
    """Rows of a request; 0: none, or it has no rows."""
    counts = {array.shape[0] if array.ndim else 0 for array in inputs.values()}
    return counts.pop() if len(counts) == 1 else 0


def _check_rows(name: str, output: Array, rows: int) -> None:
    if output.shape[:1] != (rows,):
        raise OutputWithoutRows(
            f"output {name!r} has the shape {list(output.shape)} for {rows} rows"
        )
