"""What a model takes and gives: names, datatypes, shapes, and where the batch axis is."""

from typing import Final, Literal

import msgspec

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
]  # fmt: skip
"""Datatype names of the Open Inference Protocol; BYTES is data of any length, strings included."""

Dim = int | str | None
"""One dimension: fixed, symbolic (the same symbol is the same size everywhere), or unknown."""

DYNAMIC: Final = -1
"""How a dimension that is not fixed is shown to clients."""


class TensorSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input or output of a model.

    Attributes:
        shape: one entry per axis; empty for a scalar.
        batch_axis: the axis along which requests may be merged; None when there is none.
        ragged_axis: another axis, along which requests in one batch may differ: inputs are padded
            to the longest, outputs are cut back. Its dimension is a symbol, and all tensors of a
            request with that symbol are equally long.

    Attributes of inputs:
        min_length, max_length: the least and the most that the ragged axis may measure.
        fill: what the ragged axis is padded with.
        bounds: values lie in range(*bounds).
        any_name: requests may call it what they like; only where it is the only input.
        default: what an input is filled with that a request leaves out. Its dimensions are numbers
            or symbols that inputs without a default have as well. A ragged input whose default is
            ones is a mask; rows of which it leaves nothing are never padded.

    Attributes of two-tower models:
        group: the tower that an input or output belongs to. A request may leave out all inputs of a
            group, and then gets no outputs of it; the graph is run with no rows in their place. An
            input without a group is always needed; an output without one needs all inputs.
    """

    name: str
    datatype: Datatype
    shape: tuple[Dim, ...]
    batch_axis: int | None = None
    ragged_axis: int | None = None
    min_length: int = 0
    max_length: int | None = None
    fill: int = 0
    bounds: tuple[int, int] | None = None
    default: Literal["ones", "zeros"] | None = None
    group: str | None = None
    any_name: bool = False

    @property
    def public_shape(self) -> list[int]:
        return [dim if isinstance(dim, int) else DYNAMIC for dim in self.shape]


class Signature(msgspec.Struct, frozen=True):
    """Everything needed to check, merge and split requests without asking the engine.

    Attributes:
        open_inputs: the model does not say what it takes; each request names its inputs, and
            `inputs` is empty. So with `open_outputs` and what each run gives. If batches may be
            merged, then along axis 0 of whatever comes.
        takes_any_bytes: elements of inputs of BYTES need not be text.
        labels: what the classes are called; of outputs that have as many values per row.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    open_inputs: bool = False
    open_outputs: bool = False
    takes_any_bytes: bool = False
    labels: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.open_inputs or self.open_outputs


Batching = Literal["merge", "row_by_row", "alone"]
"""How a model may be fed.

merge: requests are concatenated along the batch axis.
row_by_row: the graph's batch dimension is fixed at 1, so each row is a run of its own.
alone: no batch axis is known; each request is one run, exactly as it came.
"""
