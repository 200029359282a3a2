"""The page on uploads: its archive of a Python model is one that the daemon takes."""

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from python_models import python_model

PAGE = (Path(__file__).parents[2] / "docs" / "uploads.md").read_text(encoding="utf-8")


def test_the_archive_of_a_python_model_has_its_code_at_the_top(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "models" / "doubler", batching="off")
    (folder / "weights").mkdir()
    (folder / "weights" / "w.npy").touch()
    found = re.search(r"^python (-m zipfile .*)$", PAGE, re.MULTILINE)
    assert found
    subprocess.run(f"{sys.executable} {found[1]}", shell=True, cwd=tmp_path, check=True)
    names = ZipFile(tmp_path / "doubler.zip").namelist()
    assert {"snooze_model.py", "snooze_model.json", "weights/w.npy"} <= set(names)
