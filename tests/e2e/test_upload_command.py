"""`snooze upload` against a daemon."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import models
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from golden.safetensors.compare import HERE
from python_models import python_model

SNOOZE = [sys.executable, "-m", "snoozeml"]
X = tensor("x", [1, 1], [3])


def snooze(daemon: Daemon, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    endpoint = f"http://{daemon.ready['http']}"
    command = [*SNOOZE, "upload", *map(str, arguments), "--endpoint", endpoint]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    return models.identity_model(tmp_path / "echo.onnx")


def test_a_file(serve: Serve, echo: Path) -> None:
    daemon = serve()
    done = snooze(daemon, echo, "--pin", "--set", "max_batch_size=4", "--description", "é")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("echo is ")
    assert daemon.infer("echo", X).outputs() == {"y": [3]}
    model = daemon.model("echo")
    assert model == model | {"pinned": True, "max_batch_size": 4, "description": "é"}


def test_a_folder_under_another_name_as_json(serve: Serve, tmp_path: Path) -> None:
    folder = shutil.copytree(HERE / "mlp", tmp_path / "perceptron")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    (folder / "linked.txt").symlink_to(tmp_path / "elsewhere.txt")
    (tmp_path / "elsewhere.txt").write_text("x")
    done = snooze(serve(), folder, "--model-id", "mlp", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    model = json.loads(done.stdout)
    assert (model["id"], model["format"]) == ("mlp", "safetensors")
    files = {path.name for path in Path(model["onnx_path"]).iterdir()}
    assert files == {path.name for path in (HERE / "mlp").iterdir()} | {"linked.txt"}


def test_a_folder_is_called_by_its_name(serve: Serve, tmp_path: Path) -> None:
    daemon = serve("[server]\nallow_python_upload = true\n")
    python_model(tmp_path / "double")
    assert snooze(daemon, tmp_path / "double").stdout.startswith("double is idle")
    assert daemon.infer("double", X).outputs() == {"y": [6]}
    refused = snooze(daemon, tmp_path / "double")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "there is a model 'double' already" in refused.stderr
    assert "overwrite=true (--overwrite) replaces it" in refused.stderr
    assert "another model_id (--model-id)" in refused.stderr
    assert "(invalid_input)" in refused.stderr
    assert snooze(daemon, tmp_path / "double", "--overwrite").returncode == 0


def test_code_that_is_not_allowed_is_refused_without_talk_of_keys(
    serve: Serve, tmp_path: Path
) -> None:
    refused = snooze(serve(), python_model(tmp_path / "double"))
    assert refused.returncode == 1
    assert "allow_python_upload = true" in refused.stderr
    assert refused.stderr.endswith("(permission_denied)\n")


def test_what_is_too_large_is_told_though_not_all_was_sent(serve: Serve, tmp_path: Path) -> None:
    daemon = serve("[server]\nmax_upload_bytes = 1000\n")
    large = tmp_path / "large.onnx"
    large.write_bytes(bytes(50_000_000))
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(large, folder)
    for source in (large, folder):
        done = snooze(daemon, source)
        assert done.returncode == 1
        assert "limit of 1000 bytes (max_upload_bytes) (payload_too_large)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["missing.onnx"], 2, "does not exist"),
        ([], 2, "Missing argument 'FILE|FOLDER'"),
        (["echo.onnx", "--set", "x"], 2, "'x' is not KEY=VALUE"),
        (["echo.onnx", "--set", "max_batchsize=1"], 1, "is no field of an upload; did you mean"),
        (["empty"], 1, "empty holds no files"),
    ],
)
def test_what_cannot_be_sent(
    serve: Serve,
    echo: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    why: str,
) -> None:
    monkeypatch.chdir(echo.parent)
    (echo.parent / "empty").mkdir()
    done = snooze(serve(), *arguments)
    assert done.returncode == code
    assert why in done.stderr


def test_progress_on_a_terminal(serve: Serve, echo: Path) -> None:
    daemon = serve()
    ours, theirs = pty.openpty()
    command = [*SNOOZE, "upload", str(echo), "--endpoint", f"http://{daemon.ready['http']}"]
    done = subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, check=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "Sending" in shown
    assert "100%" in shown
    assert done.stdout.startswith(b"echo is ")
