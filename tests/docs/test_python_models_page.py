"""The page on Python models: its model passes its check, with and without its manifest."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from snoozeml.core.manifest import Manifest

PAGE = (Path(__file__).parents[2] / "docs" / "python-models.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert match
    return match[1]


@pytest.fixture
def doubler(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "doubler"
    folder.mkdir(parents=True)
    (folder / "snooze_model.py").write_text(block("python"))
    return folder


@pytest.mark.parametrize("with_manifest", [False, True])
def test_the_model_passes_its_check(doubler: Path, with_manifest: bool) -> None:
    if with_manifest:
        (doubler / "snooze_model.json").write_text(block("json"))
    python, *arguments = shlex.split(block("sh"))
    assert python == "python"
    done = subprocess.run(
        [sys.executable, *arguments], cwd=doubler.parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "output: FP32 [4, 3]: " in done.stdout


def test_the_page_names_every_key_of_the_manifest() -> None:
    keys = {field.encode_name for field in msgspec.structs.fields(Manifest)}
    assert set(json.loads(block("json"))) | {"python"} == keys
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == keys
