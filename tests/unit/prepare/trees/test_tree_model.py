"""The plan of a tree model."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from golden.trees.cases import golden_cases
from jobs import prepare_job
from snoozeml.core.plan import Format, Plan
from snoozeml.core.tensors import TensorSpec
from snoozeml.errors import ModelFailed
from snoozeml.prepare.trees import tree_model


def prepare(path: Path, model_format: Format) -> Plan:
    job = prepare_job(path, model_format, path.parent / "cache")
    plan = tree_model.prepare(job).plan
    assert plan is not None
    return plan


def prepared(folder: Path, case: str) -> Plan:
    path = folder / "model"
    path.write_bytes(golden_cases()[case].model)
    return prepare(path, "xgboost" if case.startswith("xgboost") else "lightgbm")


def outputs(plan: Plan) -> dict[str, tuple[str, tuple[object, ...]]]:
    return {spec.name: (spec.datatype, spec.shape) for spec in plan.signature.outputs}


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("xgboost-3.2.0/reg-gamma", {"predictions": ("FP32", ("rows",))}),
        ("xgboost-3.2.0/targets", {"predictions": ("FP32", ("rows", 3))}),
        (
            "xgboost-3.2.0/binary-logistic",
            {
                "predictions": ("FP32", ("rows",)),
                "label": ("INT64", ("rows",)),
                "probabilities": ("FP32", ("rows", 2)),
            },
        ),
        (
            "xgboost-3.2.0/labels",
            {
                "predictions": ("FP32", ("rows", 2)),
                "label": ("INT64", ("rows", 2)),
                "probabilities": ("FP32", ("rows", 2)),
            },
        ),
        (
            "xgboost-3.2.0/multi-softmax",
            {
                "predictions": ("FP32", ("rows",)),
                "label": ("INT64", ("rows",)),
                "probabilities": ("FP32", ("rows", 3)),
            },
        ),
        (
            "lightgbm-4.7.0/multiclass",
            {
                "predictions": ("FP64", ("rows", 3)),
                "label": ("INT64", ("rows",)),
                "probabilities": ("FP64", ("rows", 3)),
            },
        ),
        ("lightgbm-4.7.0/cross_entropy", {"predictions": ("FP64", ("rows",))}),
    ],
)
def test_outputs_are_predictions_and_what_a_classifier_has_more(
    tmp_path: Path, case: str, wanted: dict[str, tuple[str, tuple[object, ...]]]
) -> None:
    plan = prepared(tmp_path, case)
    assert outputs(plan) == wanted
    assert {spec.batch_axis for spec in plan.signature.outputs} == {0}


def test_rows_of_features_come_in_under_any_name(tmp_path: Path) -> None:
    plan = prepared(tmp_path, "xgboost-3.2.0/reg-gamma")
    assert plan.prepared
    assert plan.batching == "merge"
    assert plan.signature.inputs == (
        TensorSpec("features", "FP32", ("rows", 5), batch_axis=0, any_name=True),
    )
    assert plan.row_s is not None
    assert plan.weights_bytes == Path(plan.graph).stat().st_size


def test_only_sums_in_single_precision_need_one_thread(tmp_path: Path) -> None:
    assert prepared(tmp_path, "xgboost-3.2.0/reg-gamma").one_thread
    assert not prepared(tmp_path, "lightgbm-4.7.0/gamma").one_thread


def test_the_same_content_has_one_plan(tmp_path: Path) -> None:
    before = prepared(tmp_path, "lightgbm-4.7.0/gamma")
    copy = tmp_path / "copy"
    copy.write_bytes((tmp_path / "model").read_bytes())
    assert prepare(copy, "lightgbm") == before


@pytest.mark.parametrize("model_format", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("content", [None, b"", b"hello"])
def test_a_model_that_cannot_be_served_is_named(
    tmp_path: Path, model_format: Format, content: bytes | None
) -> None:
    path = tmp_path / "model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFailed, match="not found" if content is None else "not") as failure:
        prepare(path, model_format)
    assert path.name in failure.value.message
    assert str(tmp_path) not in failure.value.message


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_model(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "model")
    with pytest.raises(ModelFailed, match="model is not a regular file"):
        prepare(tmp_path / "model", "xgboost")


def test_without_a_cache_there_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(ModelFailed, match="cache directory cannot be written: Not a directory"):
        prepared(tmp_path, "xgboost-3.2.0/reg-gamma")
