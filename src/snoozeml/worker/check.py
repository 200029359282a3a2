"""`--check`: a Python model loaded and run once, for its author to look at."""

import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from snoozeml.core.plan import Plan, WorkerSpec
from snoozeml.core.tensors import TensorSpec
from snoozeml.errors import InvalidInput, SnoozeError
from snoozeml.prepare.python_model import plan_of
from snoozeml.wire.shapes import ShapeRules
from snoozeml.wire.tensors import DATATYPES, DTYPES, Array, Tensors, names_of
from snoozeml.worker.engines import load_engine
from snoozeml.worker.failures import failure_of

_INPUT: Final = re.compile(r"(?P<name>.+?):(?P<shape>(\d+(x\d+)*)?)(:(?P<datatype>[A-Z0-9]+))?\Z")
_ANY_SIZE: Final = 2  # of a dimension that the manifest leaves open
_SHOWN_VALUES: Final = 8


class Sample(NamedTuple):
    """An input to make up: `input:4x3`, `ids:2x8:INT64`, or `scale:` for a scalar."""

    name: str
    shape: tuple[int, ...]
    datatype: str | None

    @classmethod
    def parse(cls, text: str) -> "Sample":
        """Read an argument; raises ValueError."""
        match = _INPUT.match(text)
        if match is None or match["datatype"] not in (None, *DTYPES):
            raise ValueError(text)
        sizes = match["shape"].split("x") if match["shape"] else []
        return cls(match["name"], tuple(map(int, sizes)), match["datatype"])


def check(folder: Path, samples: Sequence[Sample], device: str) -> int:
    """Load a Python model, run it once on made-up data, and print what came of it.

    Returns:
        the exit status: 0, or 1 if it is not there, or cannot be loaded or run.
    """
    if not folder.is_dir():
        is_file = "is a file; it takes the folder of a Python model"
        why = is_file if folder.exists() else "there is no such folder"
        sys.stderr.write(f"--check {folder}: {why}\n")
        return 1
    try:
        plan = plan_of(folder.resolve(), weights_bytes=0)
        _check(plan, samples, device)
    except SnoozeError as error:
        sys.stderr.write(f"{error.code}: {error.message}\n")
        return 1
    return 0


def _check(plan: Plan, samples: Sequence[Sample], device: str) -> None:
    inputs = _inputs(plan, samples)
    started_at = time.perf_counter()
    engine = load_engine(_spec(plan, device))
    loaded_at = time.perf_counter()
    _say(f"loaded in {loaded_at - started_at:.3f} s on {engine.device}")
    asked = [spec.name for spec in plan.signature.outputs]
    try:
        outputs = engine.infer(inputs, asked)
    except SnoozeError as error:
        sys.stderr.write(failure_of(error).traceback or "")
        raise
    _say(f"ran in {(time.perf_counter() - loaded_at) * 1000:.1f} ms")
    names = names_of(outputs, asked)
    for name, array in zip(names, outputs, strict=True):
        _say(f"{name}: {DATATYPES[array.dtype]} {list(array.shape)}: {_shown(array)}")
    if plan.batching == "merge":
        _warn_of_rows(inputs, dict(zip(names, outputs, strict=True)))


def _spec(plan: Plan, device: str) -> WorkerSpec:
    return WorkerSpec(
        model_id=Path(plan.graph).name,
        plan=plan,
        device=device,
        max_batch_size=1,
        max_batch_tokens=1,
        max_batch_delay_s=0.0,
        batching="off",
        threads=1,
    )


def _inputs(plan: Plan, samples: Sequence[Sample]) -> Tensors:
    signature = plan.signature
    declared = {spec.name: spec for spec in signature.inputs}
    given = {sample.name: sample for sample in samples or map(_made_up, declared.values())}
    if signature.open_inputs:
        if not given:
            raise InvalidInput("the manifest declares no inputs, so name them: --input input:4x3")
    elif given.keys() != declared.keys():
        raise InvalidInput(f"the model takes {_listed(declared)}, got {_listed(given)}")
    else:
        ShapeRules(signature.inputs).check({name: s.shape for name, s in given.items()})
    return {name: _values(sample, declared.get(name)) for name, sample in given.items()}


def _made_up(spec: TensorSpec) -> Sample:
    shape = [dim if isinstance(dim, int) else _ANY_SIZE for dim in spec.shape]
    return Sample(spec.name, tuple(shape), spec.datatype)


def _values(sample: Sample, spec: TensorSpec | None) -> Array:
    dtype = DTYPES[spec.datatype if spec is not None else sample.datatype or "FP32"]
    if dtype.hasobject:
        return np.full(sample.shape, "text", object)
    if dtype.kind == "f":
        return np.random.default_rng(0).standard_normal(sample.shape).astype(dtype)
    return np.ones(sample.shape, dtype)


def _warn_of_rows(inputs: Tensors, outputs: Tensors) -> None:
    counts = {array.shape[:1] for array in inputs.values()}
    if len(counts) != 1:
        return
    (rows,) = counts
    for name, array in outputs.items():
        if array.shape[:1] != rows:
            _say(
                f"warning: {name} has not one row per row of the inputs, so requests will not share"
                ' runs; if it is meant to be so, say "batching": false'
            )


def _shown(array: Array) -> str:
    values = array.ravel()[:_SHOWN_VALUES].tolist()
    text = ", ".join(f"{value:g}" if isinstance(value, float) else repr(value) for value in values)
    return text + (", …" if array.size > _SHOWN_VALUES else "")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
