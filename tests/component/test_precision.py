"""Golden checkpoints in 8-bit integers."""

from pathlib import Path

import numpy as np
import pytest

import models
from golden.safetensors.compare import HERE, requests
from jobs import prepare_job
from snoozeml.core.plan import Precision, PrepareJob
from snoozeml.prepare.onnx_model import prepare as prepare_onnx
from snoozeml.prepare.safetensors.model import prepare
from snoozeml.prepare.session import open_plan
from snoozeml.wire.tensors import DTYPES, Array

LEAST_COSINE = 0.98
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")

# Texts and images, of few positions and of a fixed number; models too small for a file of weights.
NAMES = ["albert", "bert", "clip", "clip-text", "deberta-v3", "dinov3-odd", "mlp", "siglip-text"]


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_checkpoint_answers_nearly_alike_in_integers(name: str, tmp_path: Path) -> None:
    job = PrepareJob(
        model_path=str(HERE / name),
        format="safetensors",
        toolchain="test",
        cache_dir=str(tmp_path),
        cache_limit_bytes=1 << 30,
        precision="int8",
    )
    plan = prepare(job).plan
    assert plan is not None
    session = open_plan(Path(plan.graph).parent)
    outputs = [spec.name for spec in plan.signature.outputs]
    inputs, wanted = requests(HERE / name)[0]
    feed = {
        spec.name: inputs.get(spec.name, _default(spec.default, inputs)).astype(
            DTYPES[spec.datatype]
        )
        for spec in plan.signature.inputs
    }
    for output, answer in zip(outputs, session.run(outputs, feed), strict=True):
        assert _cosine(answer, wanted[output]) > LEAST_COSINE


def test_a_model_without_linear_layers_is_served_as_it_is_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = models.identity_model(tmp_path / "model.onnx")
    plans = [
        prepare_onnx(prepare_job(file, "onnx", tmp_path / precision, precision=precision)).plan
        for precision in PRECISIONS
    ]
    feed = {"x": np.ones((2, 64), np.float32)}
    answers = []
    for plan in plans:
        assert plan is not None
        assert plan.prepared
        answers.append(open_plan(Path(plan.graph).parent).run(None, feed)[0])
    np.testing.assert_array_equal(*answers)
    assert caplog.messages == ["int8: this model has no linear layers, and is served in fp32"]


def _default(kind: str | None, inputs: dict[str, Array]) -> Array:
    shape = inputs["input_ids"].shape if "input_ids" in inputs else ()
    return np.ones(shape) if kind == "ones" else np.zeros(shape)


def _cosine(one: Array, other: Array) -> float:
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float((one * other).sum()) / lengths
