from pathlib import Path

from snoozeml.cli.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it anew with `make docs`"


def test_no_paragraph_is_indented_into_a_block_of_code() -> None:
    indented = [line for line in render().splitlines() if line.startswith("    ")]
    assert indented
    assert all(line.startswith("    snooze ") for line in indented)
