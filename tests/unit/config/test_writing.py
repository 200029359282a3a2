"""An entry is written where it belongs, and everything else stays as its author wrote it."""

import json
import tomllib
from pathlib import Path

import pytest

from snoozeml.config.keys import ConfigError
from snoozeml.config.writing import replace_file, settings_in, with_entry, without_entry

TOML, JSON = Path("models.toml"), Path("models.json")
SETTINGS = {"pinned": True, "description": 'say "é"\n', "max_batch_delay_ms": 2.5}

FILES = {
    "empty": "",
    "other tables": "# mine\n[server]\nport = 1 # the first\n",
    "an entry": "[models.bge]\npinned = false # keep\n\n[[auth.api_keys]]\nname = 'k'\n",
    "another entry": "[models.iris]\npinned = true # keep\n\n[defaults]\nmax_batch_size = 4\n",
    "a list": "[[models]]\nid = 'iris' # keep\n\n[defaults]\npinned = true\n",
    "a list with it": "[[models]]\nid = 'bge'\n\n[[models]]\nid = 'iris'\nmax_batch_size = 2\n",
    "dotted": "[models]\nbge.pinned = false\niris.pinned = true # keep\n",
    "dotted at the top": "models.iris.pinned = true # keep\n",
    "inline": "models = {bge = {pinned = false}}\n",
    "tables apart": "[models.bge]\n[auth]\nenabled = true # keep\n[models.iris]\n",
    "no last line break": "[models.iris]\npinned = true",
    "Windows": "[models.iris]\r\npinned = true # keep\r\n",
}


def entries(text: str) -> dict[str, object]:
    models = tomllib.loads(text).get("models", {})
    if isinstance(models, dict):
        return models
    return {model.pop("id"): model for model in models}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_an_entry_is_added_or_changed_and_the_rest_stays(text: str) -> None:
    before, edited = entries(text), with_entry(TOML, text, "bge", SETTINGS)
    assert entries(edited) == before | {"bge": SETTINGS}
    assert tomllib.loads(edited).keys() - {"models"} == tomllib.loads(text).keys() - {"models"}
    assert edited.count("# ") == text.count("# ")
    assert with_entry(TOML, edited, "bge", SETTINGS) == edited


def test_an_entry_keeps_its_other_settings_but_not_its_path() -> None:
    text = '[models.bge]\npath = "x/y.onnx"\nmax_batch_size = 2\n'
    assert entries(with_entry(TOML, text, "bge", {})) == {"bge": {"max_batch_size": 2}}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_without_settings_nothing_is_written(text: str) -> None:
    assert with_entry(TOML, text, "new", {}) == text


@pytest.mark.parametrize("model_id", ["a.b c\"d'", "モデル", "#", "a=b", "]", "\u202e", "x" * 255])
def test_any_id_can_be_written(model_id: str) -> None:
    assert entries(with_entry(TOML, "", model_id, SETTINGS)) == {model_id: SETTINGS}


def test_an_id_is_found_in_whatever_form_it_was_typed() -> None:
    text = '[models."cafe\u0301"]\nmax_batch_size = 2\n'
    edited = with_entry(TOML, text, "café", {"pinned": True})
    assert entries(edited) == {"cafe\u0301": {"max_batch_size": 2, "pinned": True}}


def test_json() -> None:
    text = '{"server": {"port": 1}, "models": {"iris": {"pinned": true}}}'
    edited = json.loads(with_entry(JSON, text, "bge", SETTINGS))
    assert edited["models"] == {"iris": {"pinned": True}, "bge": SETTINGS}
    assert json.loads(with_entry(JSON, "", "bge", SETTINGS)) == {"models": {"bge": SETTINGS}}


def test_a_file_that_cannot_be_edited_is_not_edited_wrongly() -> None:
    with pytest.raises(ConfigError, match=r'models\.toml: \[models\."b"\] cannot be changed'):
        with_entry(TOML, "models = [{id = 'a'}]\n", "b", SETTINGS)


def test_a_linked_file_stays_linked_and_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "models.toml"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    replace_file(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"real.toml", "models.toml"}


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "models.toml"
    place.mkdir()  # root may write anything, but not this
    with pytest.raises(OSError, match="directory"):
        replace_file(place, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["models.toml"]


@pytest.mark.parametrize("text", [text for name, text in FILES.items() if name != "inline"])
def test_an_entry_that_was_added_can_be_taken_away_again(text: str) -> None:
    rest = without_entry(TOML, with_entry(TOML, text, "new", SETTINGS), "new")
    assert list(filter(None, rest.splitlines())) == list(filter(None, text.splitlines()))


@pytest.mark.parametrize("model_id", ["a.b c\"d'", "モデル", "#", "a=b", "]", "x" * 255])
def test_any_entry_can_be_taken_away(model_id: str) -> None:
    assert without_entry(TOML, with_entry(TOML, "", model_id, SETTINGS), model_id) == ""


def test_comments_and_texts_beside_an_entry_that_goes_stay() -> None:
    before = "# of all\n[models.iris]\ndescription = '''\n[models.bge]\n'''\n\n"
    after = "# of defaults\n[defaults]\npinned = true\n"
    text = before + "[models.bge]\n# its own\npinned = true # too\n\n" + after
    assert without_entry(TOML, text, "bge") == before + after


def test_an_entry_goes_from_json() -> None:
    text = '{"models": {"iris": {"pinned": true}, "bge": {}}}'
    assert json.loads(without_entry(JSON, text, "bge")) == {"models": {"iris": {"pinned": True}}}
    listed = '{"models": [{"id": "bge"}]}'
    assert json.loads(without_entry(JSON, listed, "bge")) == {"models": {}}


@pytest.mark.parametrize(
    "text", ["models = {bge = {pinned = false}}\n", "[models]\nbge.pinned = true\na.pinned = true"]
)
def test_an_entry_without_a_table_of_its_own_is_left_to_its_author(text: str) -> None:
    with pytest.raises(ConfigError, match=r'models\.toml: remove \[models\."bge"\]'):
        without_entry(TOML, text, "bge")


def test_what_an_entry_says() -> None:
    assert settings_in(TOML, "[[models]]\nid = 'bge'\npinned = true\n", "bge") == {"pinned": True}
    assert settings_in(TOML, "[models.bge]\n", "bge") == {}
    assert settings_in(TOML, "", "bge") is None
