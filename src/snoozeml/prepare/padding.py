"""Finding out whether sequences of different lengths may share a batch.

Encoders take a mask that says which tokens count. Whether it really keeps the others out of every
output, a trial decides: a short row padded beside a long one must give what it gives alone.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from snoozeml.core.tensors import Signature, TensorSpec

_IDS: Final = "input_ids"
_MASK: Final = "attention_mask"
_DEFAULTS: Final[dict[str, Literal["ones", "zeros"]]] = {_MASK: "ones", "token_type_ids": "zeros"}
"""What exporters call the inputs of encoders, and what they are when a caller leaves them out."""

PaddingTrial = Callable[[Signature], Sequence[int | None] | None]
"""Runs a row alone and padded along the ragged axes of the inputs. Per output the axis that is as
long as the row, None where there is no such axis; None instead of all: an answer was another one,
or the model would not run."""


def find_padding(signature: Signature, trial: PaddingTrial) -> Signature:
    """Complete the signature of a model that merges rows with ragged axes, if it has some."""
    symbol = _sequence(signature.inputs)
    if symbol is None:
        return signature
    padded = replace(signature, inputs=tuple(_ragged(spec, symbol) for spec in signature.inputs))
    axes = trial(padded)
    if axes is None:
        return signature
    outputs = (
        spec if axis is None else _along(spec, axis, symbol)
        for spec, axis in zip(signature.outputs, axes, strict=True)
    )
    return replace(padded, outputs=tuple(outputs))


def _sequence(inputs: Sequence[TensorSpec]) -> str | None:
    """What the number of tokens in a row is called; None: this is no encoder of token ids."""
    shapes = {spec.name: spec.shape for spec in inputs if "INT" in spec.datatype}
    ids = shapes.get(_IDS, ())
    symbol = ids[-1] if len(ids) == 2 and ids == shapes.get(_MASK) else None
    if not isinstance(symbol, str):
        return None
    affected = [spec for spec in inputs if symbol in spec.shape]
    are_paddable = all(
        spec.shape.count(symbol) == 1
        and spec.batch_axis is not None
        and spec.shape[spec.batch_axis] != symbol
        for spec in affected
    )
    return symbol if are_paddable else None


def _ragged(spec: TensorSpec, symbol: str) -> TensorSpec:
    if symbol not in spec.shape:
        return spec
    default = _DEFAULTS.get(spec.name) if len(spec.shape) == 2 else None  # rows and tokens only
    return replace(spec, ragged_axis=spec.shape.index(symbol), default=default)


def _along(spec: TensorSpec, axis: int, symbol: str) -> TensorSpec:
    """An output's axis gets the inputs' symbol, whatever the model calls it."""
    shape = (*spec.shape[:axis], symbol, *spec.shape[axis + 1 :])
    return replace(spec, ragged_axis=axis, shape=shape)
