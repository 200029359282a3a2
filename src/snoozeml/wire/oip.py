"""What the two transports of the Open Inference Protocol have in common."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from snoozeml.core.tensors import Signature
from snoozeml.errors import InvalidInput
from snoozeml.wire.json_values import quoted, shown
from snoozeml.wire.tensors import DATATYPES, Array

_OF_SEQUENCES: Final = ("sequence_id", "sequence_start", "sequence_end")
_SHARED_MEMORY: Final = "shared_memory_region"

_MOST_TEXTS: Final = 2**16
"""Of one classification. So many take a tenth of a second; those of 16 MiB of floats took nine
seconds and 1.7 GiB, and the answer had 107 MB."""


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Check what a request says beside its tensors. Unknown parameters are let alone.

    Raises:
        InvalidInput: a parameter is reserved, asks for what is not served, or has a wrong value.
    """
    for name, value in parameters.items():
        if name.startswith("triton_") or name == "headers":
            raise InvalidInput(f"parameter {quoted(name)} is reserved; use another name")
        if name in _OF_SEQUENCES and value:
            raise InvalidInput(f"parameter {name!r}: sequences are not supported")
        if name == "priority" and not _is_count(value):
            raise InvalidInput(f"priority must be a whole number from 0, not {shown(value)}")


def check_tensor_parameters(name: str, parameters: Mapping[str, Any]) -> None:
    """Check the parameters of one input or output.

    Raises:
        InvalidInput: they ask for shared memory.
    """
    if _SHARED_MEMORY in parameters:
        raise InvalidInput(f"tensor {quoted(name)}: shared memory is not supported; send the data")


def classes_asked_for(name: str, parameters: Mapping[str, Any]) -> int:
    """How many of the highest values an output shall be cut down to; 0: it comes as it is.

    Raises:
        InvalidInput: it is no such number.
    """
    count = parameters.get("classification", 0)
    if not _is_count(count):
        raise InvalidInput(
            f"output {quoted(name)}: classification must be a whole number, not {shown(count)}"
        )
    return int(count)


class Outputs:
    """How the outputs of a model are written in answers, be they declared or not."""

    def __init__(self, signature: Signature) -> None:
        self._datatypes: Final = {spec.name: spec.datatype for spec in signature.outputs}
        self._rows_on: Final = {spec.name: spec.batch_axis for spec in signature.outputs}
        self._labels: Final = signature.labels

    def written(self, name: str, array: Array, classes: int) -> tuple[str, Array]:
        """The datatype and the values that an answer has for an output.

        Args:
            classes: as from `classes_asked_for`.

        Raises:
            InvalidInput: text shall be classified, or too much.
        """
        if classes:
            axis = self._rows_on.get(name, 0)
            return "BYTES", classification(name, array, axis, classes, self._labels)
        return self._datatypes.get(name) or DATATYPES[array.dtype], array


def classification(
    name: str, array: Array, axis: int | None, classes: int, labels: Sequence[str] = ()
) -> Array:
    """The highest values of each row, as text `value:index`, or `value:index:label`.

    Args:
        name: of the output.
        axis: that the rows are on.
        labels: of the classes; they count only if there is one for each.

    Shapes:
        array: (rows, ...) with the rows on `axis`; all else is classes, row-major.
        returns: (rows, at most `classes`); (at most `classes`) where there is no batch axis.

    Raises:
        InvalidInput: the output is text, or that would be too many texts.
    """
    if array.dtype.hasobject:
        raise InvalidInput(f"output {name!r} is text, so it has no classification")
    if not array.ndim:
        axis = None
    rows = array[None] if axis is None else np.moveaxis(array, axis, 0)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    classes = min(classes, rows.shape[1])
    if len(rows) * classes > _MOST_TEXTS:
        raise InvalidInput(
            f"output {name!r}: classification asks for {len(rows)} rows of {classes} texts, more"
            f" than the limit of {_MOST_TEXTS} texts; ask for fewer, or for the values themselves"
        )
    best = _best(rows, classes, labels)
    return best.reshape(-1) if axis is None else best


def _best(rows: Array, classes: int, labels: Sequence[str]) -> Array:
    """Of equal values the first comes first."""
    endings = [f":{label}" for label in labels]
    if len(endings) != rows.shape[1]:
        endings = [""] * rows.shape[1]
    order = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :classes]
    texts = np.empty(order.shape, object)
    for at, index in np.ndenumerate(order):
        texts[at] = f"{rows[at[0], index].item():f}:{index}{endings[index]}"
    return texts


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
