"""Tree models over HTTP: found, asked, put to sleep and woken; refused when they are damaged."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from golden.trees.cases import Golden, golden_cases

CASES = golden_cases()
SERVED = {
    "dart": ("xgboost-1.7.6/dart", ".tree.json", "xgboost"),
    "rank": ("xgboost-2.1.4/rank-ndcg", ".xgb.json", "xgboost"),
    "flowers": ("xgboost-3.2.0/sklearn-3", ".ubj", "xgboost"),
    "old": ("xgboost-1.7.6/count-poisson-base", ".xgb", "xgboost"),
    "many": ("lightgbm-4.7.0/categories-zero-is-missing", ".lgb.txt", "lightgbm"),
}


def rows(features: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Features as a client would send them, under a name of its own: null for what is missing."""
    data = [None if np.isnan(value) else float(value) for value in features.ravel()]
    return tensor("X", features.shape, data)


def check(daemon: Daemon, model_id: str, case: Golden) -> None:
    reply = daemon.infer(model_id, rows(case.features)).json()
    assert reply["outputs"], reply
    for output in reply["outputs"]:
        if output["name"] in case.answers:
            got = np.array(output["data"]).reshape(output["shape"])
            np.testing.assert_allclose(got, case.answers[output["name"]], rtol=1e-6, atol=0)


def test_tree_models_are_found_served_put_to_sleep_and_woken(
    serve: Serve, models_dir: Path
) -> None:
    for model_id, (case, suffix, _) in SERVED.items():
        (models_dir / f"{model_id}{suffix}").write_bytes(CASES[case].model)
    daemon = serve()
    for model_id, (case, _, model_format) in SERVED.items():
        assert daemon.model(model_id)["format"] == model_format
        for _ in range(2):
            check(daemon, model_id, CASES[case])
            assert daemon.control(model_id, "unload")["status"] == "unloaded"
            assert daemon.model(model_id)["state"] == "idle"
        check(daemon, model_id, CASES[case])


def test_any_json_is_an_xgboost_model_where_the_configuration_names_it(
    serve: Serve, models_dir: Path
) -> None:
    case = CASES["xgboost-3.2.0/reg-gamma"]
    (models_dir / "price.json").write_bytes(case.model)
    check(serve('[models.price]\npath = "price.json"\n'), "price", case)


def test_a_classifier_gives_labels_and_probabilities(serve: Serve, models_dir: Path) -> None:
    case = CASES["xgboost-3.2.0/sklearn-2"]
    (models_dir / "yes.ubj").write_bytes(case.model)
    outputs = serve().infer("yes", rows(case.features)).outputs()
    assert outputs["label"] == case.answers["label"].tolist()
    np.testing.assert_allclose(
        np.reshape(outputs["probabilities"], (-1, 2)), case.answers["probabilities"], rtol=1e-6
    )


def cyclic(model: bytes) -> bytes:
    document = json.loads(model)
    booster = document["learner"]["gradient_booster"]
    booster["model"]["trees"][0]["left_children"][0] = 0
    return json.dumps(document).encode()


XGBOOST = CASES["xgboost-3.2.0/reg-gamma"].model
LIGHTGBM = CASES["lightgbm-4.7.0/gamma"].model


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("m.xgb.json", b"", ["m.xgb.json", "neither JSON nor UBJSON"]),
        ("m.xgb.json", XGBOOST[:-10], ["m.xgb.json", "only part of one"]),
        ("m.tree.json", cyclic(XGBOOST), ["m.tree.json", "tree 0", "back to the root"]),
        ("m.ubj", b"{L\0\0\0\2\x54\x0b\xe4\0learner", ["m.ubj", "ends early", "10000000000"]),
        ("m.lgb.txt", LIGHTGBM[:900], ["m.lgb.txt", "ends early"]),
        (
            "m.lgb.txt",
            LIGHTGBM.replace(b"num_leaves=6", b"num_leaves=999999999", 1),
            ["m.lgb.txt", "tree 0", "there must be 999999999"],
        ),
    ],
)
def test_a_damaged_model_is_refused_in_words(
    serve: Serve, models_dir: Path, file: str, content: bytes, words: Sequence[str]
) -> None:
    (models_dir / file).write_bytes(content)
    daemon = serve()
    reply = daemon.infer("m", tensor("features", [1, 5], [0] * 5))
    assert reply.status == 503
    assert reply.json()["code"] == "model_failed"
    assert all(word in reply.json()["error"] for word in words), reply.json()
    assert str(models_dir) not in reply.json()["error"]
