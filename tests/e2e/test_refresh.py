"""A refresh notices what has changed on disk, and disturbs nothing that has not."""

import shutil
from pathlib import Path

import pytest

import models
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from golden.safetensors.compare import HERE
from python_models import python_model

X = tensor("x", [1, 1], [3])


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """A cache of its own, because tests remove it."""
    return tmp_path / "cache"


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
