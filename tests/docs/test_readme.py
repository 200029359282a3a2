"""Every command of the README runs, in its order, and prints what the README says it prints.

Numbers and spans of time are taken as equal: they differ from run to run. The commands run in a
folder that looks like a clone, so that what they make is made there.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# `make` has proven itself when it runs this test, and the environment is the one that it made.
PROVEN = {"make venv", ". .venv/bin/activate"}
MADE = {"demo", "models"}


class Block(NamedTuple):
    """A piece of code, and what the README says that it prints."""

    language: str
    text: str
    serves: bool
    printed: str | None


def blocks() -> list[Block]:
    pattern = r"(<!-- serves -->\n)?```(sh|python)\n(.*?)```(?:\n```(?:text|json)\n(.*?)```)?"
    return [
        Block(language, text, bool(serves), printed or None)
        for serves, language, text, printed in re.findall(pattern, README, re.DOTALL)
    ]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for entry in ROOT.iterdir():
        if entry.name not in MADE:
            (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """This test's own Python and its commands, no settings from outside, a cache of its own."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("SNOOZE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return outside | {"PATH": path, "SNOOZE_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}


@pytest.mark.timeout(300)  # the first run fetches a model and trains another
def test_every_command_runs_and_prints_what_it_says(
    clone: Path, environment: dict[str, str]
) -> None:
    before, serving, after = split(blocks())
    for block in before:
        run(block, clone, environment)
    with daemon(serving, clone, environment) as address:
        environment["SNOOZE_ENDPOINT"] = f"http://{address}"
        for block in after:
            run(block, clone, environment, address)


def split(session: list[Block]) -> tuple[list[Block], Block, list[Block]]:
    (at,) = [index for index, block in enumerate(session) if block.serves]
    return session[:at], session[at], session[at + 1 :]


def run(
    block: Block, folder: Path, environment: dict[str, str], address: str = "127.0.0.1:8080"
) -> None:
    text = block.text.replace("127.0.0.1:8080", address)
    if block.language == "python":
        command = [sys.executable, "-c", text]
    else:
        lines = [line for line in text.splitlines() if line not in PROVEN]
        command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    if block.printed is not None:
        assert shape(done.stdout) == shape(block.printed), text


def shape(printed: str) -> str:
    """What is printed without what differs from run to run: numbers, spans, widths of columns."""
    return re.sub(r"\s+|─+", "", re.sub(r"\d+(\.\d+)?( (ms|s|min)\b)?", "#", printed))


@contextmanager
def daemon(block: Block, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The README's daemon, on a free port; yields where it listens."""
    ready, told_ready = os.pipe()
    command = f"exec {block.text.strip()} --port 0 --grpc-port 0 --ready-fd {told_ready}"
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, pass_fds=[told_ready]
    )
    os.close(told_ready)
    try:
        with os.fdopen(ready) as lines:
            yield json.loads(lines.readline())["http"]
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0


def test_the_samples_say_which_extra_their_libraries_are_in(tmp_path: Path) -> None:
    script = ROOT / "examples" / "sample_models.py"
    without = f"""
import runpy, sys
sys.modules["skl2onnx"], sys.argv[1:] = None, [{str(tmp_path)!r}]
runpy.run_path({str(script)!r}, run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "skl2onnx is missing, by which iris is trained: pip install '.[demo]'\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "skl2onnx" in " ".join(project["optional-dependencies"]["demo"])
    assert "`pip install '.[server,demo]'`" in README


def test_the_make_targets_it_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=`)", README)) | {"venv"}
    assert named >= {"demo", "test", "run", "bench"}
    assert [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_into_the_repository_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert targets
    assert [link for link in targets if not (ROOT / link).exists()] == []
