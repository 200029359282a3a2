"""Every format that we serve: discovered, served, put to sleep and woken again."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import models
from e2e import processes
from e2e.client import Reply, tensor
from e2e.conftest import Serve
from e2e.eventually import eventually
from golden.safetensors.compare import HERE, requests
from golden.trees.cases import golden_cases
from python_models import python_model


class Kind(NamedTuple):
    """A way for a model to lie in the models folder.

    Attributes:
        make: writes the model there, under the id that it is called with.
        ask: an input that it takes.
        answer: what it answers then.
    """

    format: str
    make: Callable[[Path, str], object]
    ask: dict[str, Any]
    answer: dict[str, Any]


X = tensor("x", [1, 1], [3])


def _tree_model(case: str, suffix: str) -> Kind:
    golden = golden_cases()[case]
    data = [None if np.isnan(value) else float(value) for value in golden.features.ravel()]
    answer = {name: array.ravel().tolist() for name, array in golden.answers.items()}
    ask = tensor("features", golden.features.shape, data)
    return Kind(
        case.partition("-")[0],
        lambda folder, id: (folder / f"{id}{suffix}").write_bytes(golden.model),
        ask,
        answer,
    )


def _checkpoint(name: str) -> Kind:
    inputs, answers = requests(HERE / name)[0]
    ((input_name, values),) = inputs.items()
    return Kind(
        "safetensors",
        lambda folder, id: shutil.copytree(HERE / name, folder / id),
        tensor(input_name, values.shape, values.ravel().tolist()),
        {name: array.ravel().tolist() for name, array in answers.items()},
    )


KINDS = [
    Kind("onnx", lambda folder, id: models.identity_model(folder / f"{id}.onnx"), X, {"y": [3]}),
    Kind("python", lambda folder, id: python_model(folder / id), X, {"y": [6]}),
    Kind(
        "python",
        lambda folder, id: python_model(folder / id, env={"APART": "yes"}),
        X,
        {"y": [6]},
    ),
    _checkpoint("mlp"),
    _tree_model("xgboost-3.2.0/sklearn-3", ".ubj"),
    _tree_model("xgboost-2.1.4/rank-ndcg", ".xgb.json"),
    _tree_model("lightgbm-4.7.0/categories-zero-is-missing", ".lgb.txt"),
]


def test_every_format_is_found_served_put_to_sleep_and_woken(
    serve: Serve, models_dir: Path
) -> None:
    kinds = {f"{kind.format}-{number}": kind for number, kind in enumerate(KINDS)}
    for id, kind in kinds.items():
        kind.make(models_dir, id)
    daemon = serve()
    assert {id: daemon.model(id)["format"] for id in kinds} == {
        id: kind.format for id, kind in kinds.items()
    }
    for id, kind in kinds.items():
        for loads in (1, 2):
            before = set(daemon.tree())
            cold = daemon.infer(id, kind.ask)
            _check(cold, kind)
            assert "x-snooze-cold-start-ms" in cold.headers
            warm = daemon.infer(id, kind.ask)
            _check(warm, kind)
            assert "x-snooze-cold-start-ms" not in warm.headers
            assert daemon.model(id)["loads"] == loads
            woken = set(daemon.tree()) - before - set(daemon.spares())
            assert woken

            assert daemon.control(id, "unload")["freed_bytes"] > 0

            assert daemon.model(id)["state"] == "idle"
            eventually(partial(_are_gone, woken), "all is given back")


def _check(reply: Reply, kind: Kind) -> None:
    outputs = reply.outputs()
    for name, wanted in kind.answer.items():
        assert outputs[name] == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def _are_gone(pids: set[int]) -> bool:
    return not any(map(processes.alive, pids))
