"""The page about HTTP knows every error and every route."""

import re
from pathlib import Path

from snoozeml.fronts.http.replies import STATUS
from snoozeml.serving.control import ModelView

TEXT = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")


def test_the_error_table_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", TEXT, re.MULTILINE)
    assert {code: int(status) for status, code in rows} == dict(STATUS)


def test_every_field_of_a_model_object_is_named() -> None:
    section = TEXT.partition("## A model object")[2]
    named = set(re.findall(r"`(\w+)`", section)) - {"idle", "loading", "ready", "busy", "null"}
    assert named == set(ModelView.__struct_fields__)
