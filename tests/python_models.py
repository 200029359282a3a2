"""Folders of Python code for tests."""

import json
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from snoozeml.core.plan import Plan
from snoozeml.prepare.python_model import plan_of

DOUBLE = 'return {"y": inputs["x"] * 2}'


def python_model(
    folder: Path,
    predict: str = DOUBLE,
    *,
    load: str = "pass",
    head: str = "",
    **manifest: Any,
) -> Path:
    """Write a model.

    Args:
        predict, load: bodies of the methods.
        head: code before the class.
        manifest: if any, the manifest is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    code = f"""{dedent(head)}

class Model:
    def load(self, model_dir, device):
{indent(dedent(load), " " * 8)}

    def predict(self, inputs):
{indent(dedent(predict), " " * 8)}
"""
    (folder / "snooze_model.py").write_text(code)
    if manifest:
        (folder / "snooze_model.json").write_text(json.dumps(manifest))
    return folder


def plan(folder: Path) -> Plan:
    return plan_of(folder, weights_bytes=0)
