"""Real models on made-up data: how are they fed, and when is a plan not theirs?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import models
from models import save, value
from snoozeml.core.tensors import Batching
from snoozeml.prepare import trials
from snoozeml.prepare.batching import find_batching
from snoozeml.prepare.signature import read_signature
from snoozeml.prepare.trials import trials_of

Build = Callable[[Path], Path]


def open_session(path: Path) -> Any:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def batching_of(path: Path) -> tuple[Batching, list[int | None]]:
    session = open_session(path)
    signature = read_signature(session)
    with trials_of(session, signature) as tried:
        found, batching = find_batching(signature, tried.rows)
    return batching, [spec.batch_axis for spec in (*found.inputs, *found.outputs)]


def running_sum(path: Path) -> Path:
    """Looks like a batch of rows, but each row contains those before it."""
    axis = {"axis": np.array(0, dtype=np.int64)}
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    return save(path, [node], [value("x", ["batch", 4])], [value("y", ["batch", 4])], axis)


def normalised_over_batch(path: Path) -> Path:
    nodes = [
        helper.make_node("ReduceMean", ["x", "axis"], ["mean"]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    axis = {"axis": np.array([0], dtype=np.int64)}
    return save(path, nodes, [value("x", [None, 4])], [value("y", [None, 4])], axis)


def bound_to_one_row(path: Path) -> Path:
    """Declares an open batch dimension, and reshapes to one row inside."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    shape = {"shape": np.array([1, 4], dtype=np.int64)}
    return save(path, [node], [value("x", ["batch", 4])], [value("y", ["batch", 4])], shape)


def transposed(path: Path) -> Path:
    node = helper.make_node("Transpose", ["x"], ["y"])
    return save(path, [node], [value("x", ["batch", 4])], [value("y", [4, None])])


def repeated_rows(path: Path) -> Path:
    """Two rows out for each row in: nobody could tell whose they are."""
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=0)
    return save(path, [node], [value("x", ["batch", 4])], [value("y", [None, 4])])


def shared_keys(path: Path) -> Path:
    """Every row is compared with all keys; the keys are not part of the batch."""
    node = helper.make_node("Gemm", ["x", "keys"], ["y"], transB=1)
    inputs = [value("x", ["rows", 4]), value("keys", ["keys", 4])]
    return save(path, [node], inputs, [value("y", ["rows", "keys"])])


def large_images(path: Path) -> Path:
    """Only runs on images of at least 200 by 200."""
    node = helper.make_node("Slice", ["x", "start", "end", "axes"], ["crop"])
    fixed = helper.make_node("Reshape", ["crop", "shape"], ["y"])
    weights = {
        "start": np.array([100, 100], dtype=np.int64),
        "end": np.array([200, 200], dtype=np.int64),
        "axes": np.array([2, 3], dtype=np.int64),
        "shape": np.array([0, 3 * 100 * 100], dtype=np.int64),
    }
    x, y = value("x", ["n", 3, "h", "w"]), value("y", ["n", 30000])
    return save(path, [node, fixed], [x], [y], weights)


@pytest.mark.parametrize(
    ("build", "batching", "axes"),
    [
        (models.identity_model, "merge", [0, 0]),
        (models.linear_model, "merge", [0, 0, 0]),
        (models.encoder_model, "merge", [0, 0, 0, 0]),
        (models.recurrent_model, "merge", [0, 1, 0, 1]),
        (lambda path: models.recurrent_model(path, named=False), "merge", [0, 1, 0, 1]),
        (models.string_model, "merge", [0, 0]),
        (models.fixed_batch_model, "row_by_row", [0, 0]),
        (models.scalar_model, "alone", [None, None]),
        (models.unbatched_output_model, "alone", [None, None, None]),
        (transposed, "merge", [0, 1]),
        (shared_keys, "merge", [0, None, 0]),
        (large_images, "merge", [0, 0]),
        (running_sum, "alone", [None, None]),
        (normalised_over_batch, "alone", [None, None]),
        (bound_to_one_row, "alone", [None, None]),
        (repeated_rows, "alone", [None, None]),
    ],
)
def test_how_a_model_may_be_fed(
    tmp_path: Path, build: Build, batching: Batching, axes: list[int | None]
) -> None:
    assert batching_of(build(tmp_path / "model.onnx")) == (batching, axes)


@pytest.mark.parametrize("datatype", [models.FLOAT, models.INT64, 2, 9, 10, 11])
def test_rows_are_made_up_for_every_datatype(tmp_path: Path, datatype: int) -> None:
    path = models.identity_model(tmp_path / "model.onnx", ["n", 3], datatype)
    assert batching_of(path)[0] == "merge"


def test_a_model_too_slow_for_a_trial_is_judged_by_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_BUDGET_S", 0.1)
    path = models.slow_model(tmp_path / "model.onnx", milliseconds=10_000)
    assert batching_of(path) == ("merge", [0, 0])


def test_a_model_too_large_for_a_trial_is_judged_by_its_names(tmp_path: Path) -> None:
    path = models.identity_model(tmp_path / "model.onnx", ["batch", 100_000, 100_000])
    assert batching_of(path) == ("merge", [0, 0])


def test_a_plan_with_other_weights_is_recognised(tmp_path: Path) -> None:
    session = open_session(models.linear_model(tmp_path / "model.onnx"))
    twin = open_session(models.linear_model(tmp_path / "twin.onnx"))
    other = open_session(models.linear_model(tmp_path / "other.onnx", seed=1))
    with trials_of(session, read_signature(session)) as tried:
        assert tried.same_answers(twin)
        assert not tried.same_answers(other)
