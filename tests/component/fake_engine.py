"""An engine that works, or misbehaves as it is told."""

from collections.abc import Callable, Sequence
from threading import Event
from typing import Final

import numpy as np

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import OutOfMemory
from snoozeml.wire.tensors import Array, Tensors

SIGNATURE: Final = Signature(
    inputs=(
        TensorSpec("x", "FP32", ("batch", "n"), 0),
        TensorSpec("state", "FP32", (2, "batch"), 1),
        TensorSpec("scale", "FP32", ()),
    ),
    outputs=(
        TensorSpec("y", "FP32", ("batch", "n"), 0),
        TensorSpec("next_state", "FP32", (2, "batch"), 1),
        TensorSpec("label", "INT64", ("batch",), 0),
    ),
)

Misbehave = Callable[[Tensors, dict[str, Array]], None]


class FakeEngine:
    """y = scale·x + sum of the state, next_state = state + 1, label = argmax of y.

    Args:
        how: key of `MISBEHAVIOURS`.
    """

    device: Final = "fake"

    def __init__(self, how: str = "well") -> None:
        self._misbehave: Final = MISBEHAVIOURS[how]
        self.runs: list[int] = []
        self.packed = Event()
        self.is_packable = True

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> list[Array]:
        x, state = inputs["x"], inputs["state"]
        self.runs.append(len(x))
        y = x * inputs["scale"] + state.sum(axis=0)[:, np.newaxis]
        results = {"y": y, "next_state": state + 1, "label": y.argmax(axis=1)}
        self._misbehave(inputs, results)
        return [results[name] for name in outputs]

    def pack(self) -> None:
        self.packed.set()
        if self._misbehave is _cannot_be_packed:
            raise OutOfMemory("out of memory: no room for two")


def _well(inputs: Tensors, results: dict[str, Array]) -> None:
    pass


def _mixes_rows(inputs: Tensors, results: dict[str, Array]) -> None:
    results["y"] = results["y"] - results["y"].mean(axis=0)


def _numbers_rows(inputs: Tensors, results: dict[str, Array]) -> None:
    results["label"] = np.arange(len(results["y"]))


def _adds_up_rows(inputs: Tensors, results: dict[str, Array]) -> None:
    results["y"] = results["y"].cumsum(axis=0)


def _works_in_place(inputs: Tensors, results: dict[str, Array]) -> None:
    for array in inputs.values():
        array *= 2
    results["y"] = results["y"] - results["y"].mean(axis=0)


def _loses_a_row(inputs: Tensors, results: dict[str, Array]) -> None:
    results["y"] = results["y"][: max(len(results["y"]) - 1, 1)]


def _answers_one_number(inputs: Tensors, results: dict[str, Array]) -> None:
    results["y"] = np.asarray(results["y"].mean())


def _takes_one_row(inputs: Tensors, results: dict[str, Array]) -> None:
    if len(inputs["x"]) > 1:
        raise RuntimeError("one row, please")


def _pads_with_noise(inputs: Tensors, results: dict[str, Array]) -> None:
    results["y"] = results["y"] + results["y"].shape[1]


def _hates_negatives(inputs: Tensors, results: dict[str, Array]) -> None:
    if (inputs["x"] < 0).any():
        raise ValueError("negative")


def _has_room_for(rows: int) -> Misbehave:
    def misbehave(inputs: Tensors, results: dict[str, Array]) -> None:
        if len(inputs["x"]) > rows:
            raise OutOfMemory(f"out of memory: there is room for {rows} rows")

    return misbehave


def _cannot_be_packed(inputs: Tensors, results: dict[str, Array]) -> None:
    pass


def _changes_datatype(inputs: Tensors, results: dict[str, Array]) -> None:
    results["y"] = results["y"].astype(np.float64)


def _is_not_a_number(inputs: Tensors, results: dict[str, Array]) -> None:
    results["y"][:, 0] = np.nan


MISBEHAVIOURS: Final[dict[str, Misbehave]] = {
    "well": _well,
    "mixes rows": _mixes_rows,
    "numbers rows": _numbers_rows,
    "adds up rows": _adds_up_rows,
    "works in place": _works_in_place,
    "loses a row": _loses_a_row,
    "answers one number": _answers_one_number,
    "takes one row": _takes_one_row,
    "pads with noise": _pads_with_noise,
    "hates negatives": _hates_negatives,
    **{f"has room for {rows}": _has_room_for(rows) for rows in range(9)},
    "cannot be packed": _cannot_be_packed,
    "changes datatype": _changes_datatype,
    "is not a number": _is_not_a_number,
}
