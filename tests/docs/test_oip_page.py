"""The page on the Open Inference Protocol: its examples print what it says, its routes answer."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.stand import iris_model

from e2e.daemon import Daemon

PAGE = (Path(__file__).parents[2] / "docs" / "oip.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8080"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "iris.onnx").write_bytes(iris_model())
    with Daemon(folder, tmp_path_factory.mktemp("cache")) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


def example(language: str) -> tuple[str, str]:
    """A block of code, and what the page says that it prints."""
    match = re.search(rf"```{language}\n(.*?)```\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert match
    return match[1], match[2]


def run(daemon: Daemon, *command: str) -> str:
    command = tuple(part.replace(ADDRESS, daemon.ready["http"]) for part in command)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_request_by_curl(daemon: Daemon) -> None:
    code, printed = example("sh")
    assert json.loads(run(daemon, "sh", "-c", code)) == json.loads(printed)


def test_the_request_by_tritons_client(daemon: Daemon) -> None:
    code, printed = example("python")
    assert run(daemon, sys.executable, "-c", code) == printed


def test_every_route_answers(daemon: Daemon) -> None:
    rows = re.findall(r"^\| `(/v2\S*)`.*?\| (GET|POST) \|", PAGE, re.MULTILINE)
    assert len(rows) == 10
    for path, method in rows:
        target = path.replace("{name}", "iris")
        body = b"{}" if method == "POST" else None
        wrong_body = target.endswith("/infer")
        assert daemon.request(method, target, body).status == (400 if wrong_body else 200), target
