"""Finding the axis along which requests to a model may be merged.

Symbolic dimensions suggest where the batch axis is, and a trial decides: two rows run together
must give what each gives alone. A recurrent network over `[time, features]` has the shape of a
model over `[batch, features]`, and only the trial tells them apart. Where no trial is possible,
only dimensions named after the batch are believed. In doubt nothing is merged.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from snoozeml.core.tensors import Batching, Signature, TensorSpec

Axes = tuple[int | None, ...]
"""The batch axis of each input; None where an input belongs to all rows alike."""


class OutputRows(NamedTuple):
    """How an output behaved when two rows were run together.

    Attributes:
        axis: where it carries one entry per row, equal to what the row gives alone; None when there
            is no such axis.
        rank: how many axes it has.
    """

    axis: int | None
    rank: int


Trial = Callable[[Axes], Sequence[OutputRows] | None]
"""Runs two rows along the given axes, alone and together; None: the model would not run."""


def find_batching(signature: Signature, trial: Trial) -> tuple[Signature, Batching]:
    """Complete a signature with batch axes, and say how the model may be fed."""
    if _is_fixed_at_one(signature):
        return _row_by_row(signature), "row_by_row"
    ran = False
    for axes in _candidates(signature):
        outcome = trial(axes)
        if outcome is None:
            continue
        ran = True
        if all(rows.axis is not None for rows in outcome):
            return _merged(signature, axes, outcome), "merge"
    if not ran and (named := _by_name(signature)):
        return named, "merge"
    return signature, "alone"


def _is_fixed_at_one(signature: Signature) -> bool:
    ranked = [spec for spec in signature.inputs if spec.shape]
    return bool(ranked) and all(spec.shape[:1] == (1,) for spec in (*ranked, *signature.outputs))


def _row_by_row(signature: Signature) -> Signature:
    inputs = tuple(replace(s, batch_axis=0 if s.shape else None) for s in signature.inputs)
    return Signature(inputs, tuple(replace(s, batch_axis=0) for s in signature.outputs))


def _candidates(signature: Signature) -> Iterable[Axes]:
    """Where the batch axis may be, likeliest first."""
    named = [_along(symbol, signature.inputs) for symbol in _symbols(signature)]
    candidates = dict.fromkeys([*named, tuple(map(_leading_axis, signature.inputs))])
    return [axes for axes in candidates if any(axis is not None for axis in axes)]


def _symbols(signature: Signature) -> list[str]:
    """Symbolic dimensions of the inputs: those that sound right, then those in most tensors, then
    those that come first in a shape."""
    specs = (*signature.inputs, *signature.outputs)
    dims = (dim for spec in signature.inputs for dim in spec.shape)
    return sorted(
        dict.fromkeys(dim for dim in dims if isinstance(dim, str)),
        key=lambda symbol: (
            not _sounds_like_batch(symbol),
            -sum(symbol in spec.shape for spec in specs),
            not any(spec.shape[:1] == (symbol,) for spec in signature.inputs),
        ),
    )


def _sounds_like_batch(symbol: str) -> bool:
    return "batch" in symbol.lower()


def _along(symbol: str, specs: Sequence[TensorSpec]) -> Axes:
    return tuple(s.shape.index(symbol) if s.shape.count(symbol) == 1 else None for s in specs)


def _leading_axis(spec: TensorSpec) -> int | None:
    """The first axis if its size is open, else the only open one."""
    dynamic = [axis for axis, dim in enumerate(spec.shape) if not isinstance(dim, int)]
    return dynamic[0] if dynamic[:1] == [0] or len(dynamic) == 1 else None


def _merged(signature: Signature, axes: Axes, outcome: Sequence[OutputRows]) -> Signature:
    inputs = tuple(map(_with_axis, signature.inputs, axes))
    outputs = (
        replace(spec, batch_axis=rows.axis, shape=spec.shape or (None,) * rows.rank)
        for spec, rows in zip(signature.outputs, outcome, strict=True)
    )
    return Signature(inputs, tuple(outputs))


def _with_axis(spec: TensorSpec, axis: int | None) -> TensorSpec:
    return replace(spec, batch_axis=axis)


def _by_name(signature: Signature) -> Signature | None:
    """The batch axes as the names alone tell them; None when they leave anything open."""
    for symbol in filter(_sounds_like_batch, _symbols(signature)):
        inputs, outputs = (_along(symbol, s) for s in (signature.inputs, signature.outputs))
        left_open = any(
            axis is None and _leading_axis(spec) is not None
            for spec, axis in zip(signature.inputs, inputs, strict=True)
        )
        if None not in outputs and not left_open:
            return Signature(
                tuple(map(_with_axis, signature.inputs, inputs)),
                tuple(map(_with_axis, signature.outputs, outputs)),
            )
    return None
