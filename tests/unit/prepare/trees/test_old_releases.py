"""What older releases wrote otherwise, and that no golden model shows."""

import json

import numpy as np
import pytest

from golden.trees.cases import golden_cases
from snoozeml.prepare.trees.lightgbm_file import read_lightgbm
from snoozeml.prepare.trees.xgboost_file import read_xgboost


@pytest.mark.parametrize(
    ("version", "start"), [([1, 2, 1], -0.8472979), ([1, 3, 0], 0.3), ([3, 2, 0], 0.3)]
)
def test_the_base_score_of_raw_logits_was_a_probability_before_1_3(
    version: list[int], start: float
) -> None:
    document = json.loads(golden_cases()["xgboost-1.7.6/binary-logitraw"].model)
    document["version"] = version
    document["learner"]["learner_model_param"]["base_score"] = "3E-1"
    forest, _ = read_xgboost(json.dumps(document).encode())
    np.testing.assert_allclose(forest.base, [start], rtol=1e-6)


def test_trees_without_categories_need_not_say_so() -> None:
    model = golden_cases()["xgboost-1.7.6/reg-gamma"].model
    document = json.loads(model)
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        del tree["split_type"], tree["categories"], tree["categories_nodes"]
    forest, _ = read_xgboost(json.dumps(document).encode())
    whole, _ = read_xgboost(model)
    for tree, wanted in zip(forest.trees, whole.trees, strict=True):
        np.testing.assert_array_equal(tree.view, wanted.view)


@pytest.mark.parametrize(
    ("old", "new"), [("xentropy", "cross_entropy"), ("xentlambda", "cross_entropy_lambda")]
)
def test_cross_entropy_had_another_name(old: str, new: str) -> None:
    model = golden_cases()[f"lightgbm-4.7.0/{new}"].model
    renamed = model.replace(f"objective={new}\n".encode(), f"objective={old}\n".encode())
    assert renamed != model
    assert read_lightgbm(renamed)[1] == read_lightgbm(model)[1]
