"""The configuration page says what the code does."""

import re
import tomllib
from pathlib import Path

import pytest

from snoozeml.config import reference
from snoozeml.config.loading import Overrides, load

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def test_the_reference_is_what_the_schema_says() -> None:
    _, marker, generated = TEXT.partition("do not edit below. -->\n\n")
    assert marker
    assert generated == reference.render(), "run python -m snoozeml.config.reference"


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_loads(example: str, tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(example, encoding="utf-8")
    models = tomllib.loads(example)["models"]
    entries = models.items() if isinstance(models, dict) else [(m["id"], m) for m in models]
    for model_id, entry in entries:
        path = tmp_path / entry.get("path", f"{model_id}.onnx")
        path.parent.mkdir(exist_ok=True)
        path.touch()
    configuration = load(Overrides(models_dir=tmp_path), {"SNOOZE_CACHE_DIR": "/cache"})
    assert {model.id for model in configuration.models} == {model_id for model_id, _ in entries}
