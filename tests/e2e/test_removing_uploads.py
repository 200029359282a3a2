"""Uploads that are taken away again: by deleting their links, as the documentation says."""

import tomllib
from pathlib import Path

import pytest

import models
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.uploading import drafts, upload

X = tensor("x", [1, 1], [3])
MINE = "# mine\n[defaults]\nmax_batch_size = 2 # small\n"


@pytest.fixture
def echo(tmp_path: Path) -> bytes:
    return models.identity_model(tmp_path / "echo.onnx").read_bytes()


def _ids(daemon: Daemon) -> list[str]:
    return [model["id"] for model in daemon.request("GET", "/v1/models").json()]


def test_the_settings_that_came_with_an_upload_go_with_it(
    serve: Serve, models_dir: Path, echo: bytes
) -> None:
    daemon = serve(MINE)
    assert upload(daemon, echo, "echo.onnx", max_batch_size="4", pinned="true").status == 200
    (models_dir / "echo").unlink()

    assert daemon.refresh()["removed"] == ["echo"]

    assert (models_dir / "models.toml").read_text() == MINE
    again = upload(daemon, echo, "echo.onnx")
    assert (again.status, again.json()["max_batch_size"]) == (200, 2)
    (models_dir / "echo").unlink()
    assert daemon.stop() == 0
    assert _ids(serve()) == []
    assert drafts(models_dir) == []


def test_the_next_start_takes_them_away_too(serve: Serve, models_dir: Path, echo: bytes) -> None:
    daemon = serve(MINE)
    assert upload(daemon, echo, "echo.onnx", max_batch_size="4").status == 200
    assert upload(daemon, echo, "echo.onnx", overwrite="true").json()["max_batch_size"] == 4
    assert upload(daemon, echo, "echo.onnx", overwrite="true", pinned="true").status == 200
    assert daemon.stop() == 0
    (models_dir / "echo").unlink()
    assert _ids(serve()) == []
    assert (models_dir / "models.toml").read_text() == MINE
    assert drafts(models_dir) == []


def test_other_uploads_work_before_anybody_refreshes(
    serve: Serve, models_dir: Path, echo: bytes
) -> None:
    daemon = serve(MINE)
    for name in ("one", "two"):
        assert upload(daemon, echo, f"{name}.onnx", max_batch_size="4").status == 200
        (models_dir / name).unlink()
    assert upload(daemon, echo, "three.onnx", max_batch_size="5").status == 200
    assert _ids(daemon) == ["three"]
    text = (models_dir / "models.toml").read_text()
    assert tomllib.loads(text)["models"] == {"three": {"max_batch_size": 5}}


def test_a_start_that_fails_takes_nothing_away(serve: Serve, models_dir: Path, echo: bytes) -> None:
    daemon = serve(MINE)
    assert upload(daemon, echo, "echo.onnx", max_batch_size="4").status == 200
    assert daemon.stop() == 0
    link, config = models_dir / "echo", models_dir / "models.toml"
    target, text = link.readlink(), config.read_text()
    link.unlink()
    wrong = f"{text}[models.ghost]\npinned = true\n"
    config.write_text(wrong)
    with pytest.raises(AssertionError, match="ghost"):
        serve()
    assert config.read_text() == wrong
    config.write_text(text)
    link.symlink_to(target)
    daemon = serve()
    assert daemon.model("echo")["max_batch_size"] == 4
    assert daemon.infer("echo", X).outputs() == {"y": [3]}


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_an_entry_that_somebody_has_written_to_is_not_taken_away(
    serve: Serve, models_dir: Path, echo: bytes, is_first: bool
) -> None:
    (models_dir / "echo.onnx").write_bytes(echo)
    config = models_dir / "models.toml"
    written = "[models.echo]\nmax_batch_size = 8\n"
    daemon = serve(written if is_first else MINE)
    assert upload(daemon, echo, "echo.onnx", overwrite="true", pinned="true").status == 200
    if not is_first:
        config.write_text(config.read_text().replace("pinned = true", "pinned = false"))
    link, text = models_dir / "echo", config.read_text()
    target = link.readlink()
    link.unlink()
    refused = daemon.request("POST", "/v1/models/refresh")
    assert refused.status == 400
    assert 'models."echo": no model with this id' in refused.json()["error"]
    assert "or remove this entry" in refused.json()["error"]
    assert config.read_text() == text
    link.symlink_to(target)
    assert [model["id"] for model in daemon.refresh()["models"]] == ["echo"]


def test_where_the_configuration_cannot_be_written_it_is_told_and_works_all_the_same(
    serve: Serve, models_dir: Path, echo: bytes
) -> None:
    daemon = serve(MINE)
    assert upload(daemon, echo, "echo.onnx", max_batch_size="4").status == 200
    (models_dir / ".models.toml.new").mkdir()  # in the way, as a read-only mount would be
    (models_dir / "echo").unlink()
    for _ in range(2):
        assert daemon.refresh()["models"] == []
        warned = [line["event"] for line in daemon.log() if line["level"] == "warning"]
        assert any('remove [models."echo"]' in line for line in warned), warned
        assert daemon.stop() == 0
        daemon = serve()
    (models_dir / ".models.toml.new").rmdir()
    assert daemon.refresh()["models"] == []
    assert (models_dir / "models.toml").read_text() == MINE
