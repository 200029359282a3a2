"""Making a plan while something goes wrong at each step."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import models
from jobs import prepare_job
from snoozeml.core.plan import PLANS_FOLDER, Plan
from snoozeml.errors import ModelFailed, OutOfMemory
from snoozeml.prepare import onnx_model, session


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.linear_model(tmp_path / "model.onnx")


def prepare(model: Path) -> Plan:
    job = prepare_job(model, "onnx", model.parent / "cache")
    plan = onnx_model.prepare(job).plan
    assert plan is not None
    return plan


def published(model: Path) -> list[Path]:
    return list((model.parent / "cache" / PLANS_FOLDER).iterdir())


def test_a_plan_that_answers_otherwise_is_not_published(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = models.linear_model(model.with_name("other.onnx"), seed=1)
    monkeypatch.setattr(onnx_model, "open_plan", lambda _: session.open_plainly(other))
    plan = prepare(model)
    assert not plan.prepared
    assert plan.unprepared_because == "the optimised graph answers otherwise than the model"
    assert published(model) == []


def test_a_plan_with_another_interface_is_not_published(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = models.linear_model(model.with_name("other.onnx"), classes=4)
    monkeypatch.setattr(onnx_model, "open_plan", lambda _: session.open_plainly(other))
    plan = prepare(model)
    assert not plan.prepared
    assert "other inputs or outputs" in (plan.unprepared_because or "")
    assert published(model) == []


def test_a_model_that_changes_meanwhile_gets_no_plan(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def optimise(path: Path, folder: Path, model_bytes: int) -> Any:
        opened = session.optimise(path, folder, model_bytes)
        models.linear_model(path, seed=1)
        return opened

    monkeypatch.setattr(onnx_model, "optimise", optimise)
    with pytest.raises(ModelFailed, match="changed while it was being prepared"):
        prepare(model)
    assert published(model) == []


def test_a_constant_that_is_larger_than_the_model_by_far_is_not_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_SMALL_CONSTANT_BYTES", 0)
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        helper.make_node("Add", ["x", "large"], ["y"]),
    ]
    inputs, outputs = [models.value("x", ["batch", 1])], [models.value("y", ["batch", 2**16])]
    weights = {"shape": np.array([1, 2**16], dtype=np.int64)}
    plan = prepare(models.save(tmp_path / "model.onnx", nodes, inputs, outputs, weights))
    assert plan.prepared
    assert plan.weights_bytes < 10_000


def test_a_dimension_that_is_no_text_is_refused(model: Path) -> None:
    damaged = models.identity_model(model, shape=("rowsrows", 1)).read_bytes()
    model.write_bytes(damaged.replace(b"rowsrows", b"rows\xf5rowsrows"[:8]))
    with pytest.raises(ModelFailed, match="not UTF-8"):
        prepare(model)


def test_a_failing_optimiser_is_no_obstacle(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def optimise(*_: Any) -> Any:
        raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : cannot\n  optimise")

    monkeypatch.setattr(onnx_model, "optimise", optimise)
    plan = prepare(model)
    assert not plan.prepared
    assert plan.unprepared_because == "cannot optimise"
    assert plan.graph == str(model)
    assert plan.weights_bytes == model.stat().st_size
    assert plan.batching == "merge"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc")])
def test_too_little_memory_has_a_name(
    model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ort, "InferenceSession", fail)
    with pytest.raises(OutOfMemory, match=r"^out of memory: the engine cannot load model\.onnx"):
        prepare(model)


def test_copies_of_a_model_share_a_plan_and_know_their_own_file(model: Path) -> None:
    copy = model.with_name("copy.onnx")
    copy.write_bytes(model.read_bytes())
    plan, plan_of_copy = prepare(model), prepare(copy)
    assert plan.graph == plan_of_copy.graph
    assert (plan.source, plan_of_copy.source) == (str(model), str(copy))
