"""How far a plan's answers are from the golden ones."""

from pathlib import Path

import numpy as np
import onnxruntime

from jobs import prepare_job
from snoozeml.core.plan import Plan
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.prepare.safetensors.model import prepare
from snoozeml.prepare.session import Session, open_plan
from snoozeml.wire.tensors import DTYPES, Array, Tensors

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/golden.npz"))


def largest_difference(folder: Path, cache_dir: Path, *, packed: bool = False) -> float:
    """Over all requests and outputs, relative to the largest value of the output.

    What is answered at masked positions has no meaning and is not compared.

    Args:
        packed: ask the plan's packed graph, which there must be.
    """
    signature, session = opened(folder, cache_dir, packed=packed)
    specs = {spec.name: spec for spec in signature.outputs}
    largest = 0.0
    for inputs, wanted in requests(folder):
        answers = session.run(list(specs), _complete(signature.inputs, inputs))
        for name, answer in zip(specs, answers, strict=True):
            _check_shape(specs[name], answer)
            difference = _difference(answer, wanted[name], _mask(inputs, specs[name]))
            largest = max(largest, difference)
    return largest


def opened(folder: Path, cache_dir: Path, *, packed: bool = False) -> tuple[Signature, Session]:
    """The plan of a checkpoint, ready to run."""
    job = prepare_job(folder, "safetensors", cache_dir)
    plan = prepare(job).plan
    assert plan is not None
    return plan.signature, _open_packed(plan) if packed else _open(plan)


def _open(plan: Plan) -> Session:
    weights_folder = None if plan.weights_folder is None else Path(plan.weights_folder)
    return open_plan(Path(plan.graph).parent, weights_folder)


def _open_packed(plan: Plan) -> Session:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(plan.packed_graph, options)


def _check_shape(spec: TensorSpec, answer: Array) -> None:
    declared = zip(spec.shape, answer.shape, strict=True)
    assert all(dim == size for dim, size in declared if isinstance(dim, int)), spec


def requests(folder: Path) -> list[tuple[Tensors, Tensors]]:
    """Inputs, and what the reference answered."""
    with np.load(folder / "golden.npz") as golden:
        found: dict[str, dict[str, Tensors]] = {}
        for key in golden.files:
            number, way, name = key.split("/")
            found.setdefault(number, {"in": {}, "out": {}})[way][name] = golden[key]
    return [(request["in"], request["out"]) for request in found.values()]


def _complete(specs: tuple[TensorSpec, ...], inputs: Tensors) -> Tensors:
    """With inputs that the reference does not take, or that were left out."""
    shape = next(iter(inputs.values())).shape
    fill = {"ones": np.ones, "zeros": np.zeros}
    return {
        spec.name: inputs[spec.name].astype(DTYPES[spec.datatype])
        if spec.default is None or spec.name in inputs
        else fill[spec.default](shape, DTYPES[spec.datatype])
        for spec in specs
    }


def _mask(inputs: Tensors, spec: TensorSpec) -> Array | None:
    return inputs["attention_mask"] if spec.ragged_axis is not None else None


def _difference(answer: Array, wanted: Array, mask: Array | None) -> float:
    assert answer.shape == wanted.shape
    if mask is not None:
        answer, wanted = answer[mask != 0], wanted[mask != 0]
    return float(np.abs(answer - wanted).max() / np.abs(wanted).max())
