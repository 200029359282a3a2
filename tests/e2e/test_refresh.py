"""A refresh notices what has changed on disk, and disturbs nothing that has not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import models
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon, path
from e2e.eventually import eventually
from golden.safetensors.compare import HERE
from golden.trees.cases import golden_cases
from python_models import python_model

X = tensor("x", [1, 1], [3])


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """A cache of its own, because tests remove it."""
    return tmp_path / "cache"


def _onnx(folder: Path) -> Path:
    return models.identity_model(folder / "m.onnx")


def _external_data(folder: Path) -> Path:
    (folder / "m").mkdir()
    return models.external_data_model(folder / "m" / "model.onnx").with_name("weights.bin")


def _xgboost(folder: Path) -> Path:
    file = folder / "m.ubj"
    file.write_bytes(golden_cases()["xgboost-3.2.0/sklearn-3"].model)
    return file


def _lightgbm(folder: Path) -> Path:
    file = folder / "m.lgb.txt"
    file.write_bytes(golden_cases()["lightgbm-4.7.0/categories-zero-is-missing"].model)
    return file


def _checkpoint(folder: Path) -> Path:
    return Path(shutil.copytree(HERE / "bert", folder / "m")) / "config.json"


def _python(folder: Path) -> Path:
    return python_model(folder / "m", batching="off") / "snooze_model.json"


@pytest.mark.parametrize("make", [_onnx, _external_data, _xgboost, _lightgbm, _checkpoint, _python])
def test_a_failed_model_that_was_mended_is_tried_anew(
    serve: Serve, models_dir: Path, make: Callable[[Path], Path]
) -> None:
    file = make(models_dir)
    good = file.read_bytes()
    file.write_bytes(b"[broken")
    daemon = serve()
    for _ in range(4):  # which make the daemon refuse for eight seconds what comes next
        assert daemon.request("POST", path("m", "load")).status == 503
    assert daemon.infer("m", X).json()["code"] == "model_failed"
    file.write_bytes(good)
    assert daemon.refresh()["models"][0]["last_error"] is None
    assert daemon.infer("m", X).status in (200, 400)  # the model's own word about this input
    assert daemon.model("m")["loads"] == 1


def test_what_was_not_mended_backs_off_from_the_beginning(serve: Serve, models_dir: Path) -> None:
    (models_dir / "m.onnx").write_bytes(b"broken")
    daemon = serve()
    for _ in range(5):
        assert daemon.request("POST", path("m", "load")).status == 503
    assert int(daemon.infer("m", X).headers["retry-after"]) > 8
    daemon.refresh()
    assert int(daemon.infer("m", X).headers["retry-after"]) == 1


@pytest.fixture
def menagerie(models_dir: Path) -> Path:
    """`awake` and `pinned` and an encoder, each of another kind."""
    models.identity_model(models_dir / "pinned.onnx")
    shutil.copytree(HERE / "bert", models_dir / "encoder")
    python_model(models_dir / "python")
    models.identity_model(models_dir / "asleep.onnx")
    return models_dir


def test_a_cache_that_was_deleted_disturbs_no_model(
    serve: Serve, menagerie: Path, cache_dir: Path
) -> None:
    daemon = serve("[models.pinned]\npinned = true\n")
    for name in ("pinned", "encoder", "python"):
        daemon.control(name, "load")
    daemon.control("asleep", "load")
    daemon.control("asleep", "unload")
    before = daemon.workers()
    shutil.rmtree(cache_dir)

    assert daemon.refresh()["changed"] == []

    assert daemon.workers() == before
    assert daemon.model("pinned")["state"] == "ready"
    assert daemon.infer("asleep", X).status == 200  # prepared anew
    daemon.control("pinned", "unload")
    assert daemon.infer("pinned", X).outputs() == {"y": [3]}
    assert daemon.refresh()["changed"] == []


def test_a_change_counts_though_the_cache_was_deleted_as_well(
    serve: Serve, menagerie: Path, cache_dir: Path
) -> None:
    daemon = serve()
    daemon.control("pinned", "load")
    daemon.control("python", "load")
    shutil.rmtree(cache_dir)
    python_model(menagerie / "python", 'return {"y": inputs["x"] * 3}')
    assert daemon.refresh()["changed"] == ["python"]
    eventually(lambda: _states(daemon)["python"] == "idle", "the version before has left")
    assert _states(daemon)["pinned"] == "ready"
    assert daemon.infer("python", X).outputs() == {"y": [9]}


def _states(daemon: Daemon) -> dict[str, str]:
    listed = daemon.request("GET", "/v1/models").json()
    return {model["id"]: model["state"] for model in listed}
