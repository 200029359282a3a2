"""The page about security shows configurations that work."""

import re
from pathlib import Path

import pytest

from snoozeml.config.loading import Overrides, load
from snoozeml.core.roles import SPELLINGS

TEXT = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
ENVIRONMENT = {
    "SNOOZE_CACHE_DIR": "/cache", "SEARCH_KEY": "k", "SNOOZE_JWT_SECRET": "s" * 64,
}  # fmt: skip


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_loads_without_a_warning(example: str, tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(example, encoding="utf-8")
    auth = load(Overrides(models_dir=tmp_path), ENVIRONMENT).auth
    assert auth.enabled
    assert auth.warnings == ()


def test_every_spelling_of_a_role_is_told() -> None:
    assert SPELLINGS.keys() <= set(re.findall(r"`(\w+)`", TEXT))
