from pathlib import Path

from snoozeml.cli.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it anew with `make docs`"
