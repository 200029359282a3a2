"""Settings are read with errors that name them."""

import os
from pathlib import Path
from typing import Any

import pytest

from snoozeml.errors import ModelFailed, UnsupportedArchitecture
from snoozeml.prepare.safetensors.configuration import Config


def test_what_is_missing_or_null_has_its_default() -> None:
    config = Config({"a": None})
    assert config.size("a", 3) == config.size("b", 3) == 3
    assert config.text("a", "x") == "x"
    assert config.flag("a", False) is False
    assert config.number("a", 0.5) == 0.5
    assert config.texts("a") == []
    assert config.integers("a") == []
    assert "a" not in config.section("a")


def test_what_is_missing_without_a_default_is_named() -> None:
    with pytest.raises(ModelFailed, match=r"config\.json lacks hidden_size"):
        Config({}).size("hidden_size")


def test_what_is_shared_must_come_out_even() -> None:
    assert Config({"hidden_size": 12, "heads": 4}).shared("hidden_size", "heads") == 3
    assert Config({}).shared("hidden_size", "heads", 12, 4) == 3
    for heads in (5, 13):
        with pytest.raises(ModelFailed, match=r"hidden_size \(12\) must be a multiple of heads"):
            Config({"hidden_size": 12, "heads": heads}).shared("hidden_size", "heads")


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (Config.integer, "12", "a whole number"),
        (Config.integer, 1.5, "a whole number"),
        (Config.integer, True, "a whole number"),
        (Config.integer, [], "a whole number"),
        (Config.integer, 10**40, "from -16777216 to 16777216"),
        (Config.size, 0, "from 1 to"),
        (Config.size, -4, "from 1 to"),
        (Config.size, 1 << 40, "from 1 to 16777216"),
        (Config.number, "1e-5", "a number"),
        (Config.number, {}, "a number"),
        (Config.text, 1, "text"),
        (Config.flag, 1, "true or false"),
        (Config.flag, "false", "true or false"),
        (Config.texts, [1], "a text or a list of them"),
        (Config.texts, {}, "a text or a list of them"),
        (Config.integers, "1", "a whole number or a list of them"),
        (Config.integers, [3, 1 << 63], "a whole number or a list of them, each up to 16777216"),
        (Config.section, [], "an object"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named(read: Any, value: Any, expected: str) -> None:
    with pytest.raises(ModelFailed, match=rf"config\.json: key must be {expected}"):
        read(Config({"key": value}), "key")


def test_one_of_a_list_may_stand_for_the_list() -> None:
    config = Config({"one": "a", "several": ["a", "b"], "number": 3})
    assert (config.texts("one"), config.texts("several")) == (["a"], ["a", "b"])
    assert config.integers("number") == [3]


def test_settings_are_known_under_their_usual_names() -> None:
    config = Config({"dim": 4, "n": 2}).renamed({"hidden_size": "dim", "layers": "n_layers"})
    assert config.size("hidden_size") == 4
    assert "layers" not in config


def test_an_option_that_is_not_built_is_named() -> None:
    Config({}).require("is_decoder", False)
    Config({"is_decoder": False}).require("is_decoder", False)
    with pytest.raises(UnsupportedArchitecture, match="is_decoder = True is not supported"):
        Config({"is_decoder": True}).require("is_decoder", False)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{", b"{'a': 1}", b"[" * 90_000, b'{"a": NaN}', b"\xff"]
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ModelFailed, match=r"config\.json is not a JSON object"):
        Config.read(file)


def test_a_file_that_is_none_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with pytest.raises(ModelFailed, match=r"no regular file config\.json"):
        Config.read(file)
    os.mkfifo(file)  # nobody writes to it: opening it would hang
    with pytest.raises(ModelFailed, match=r"no regular file config\.json"):
        Config.read(file)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"1": "b", "0": "a"}, ("a", "b")),
        ({}, ()),
        ({"1": "b", "2": "c"}, ()),
        ({"0": 1}, ()),
        (["a"], ()),
        (None, ()),
    ],
)
def test_numbered_texts_come_in_order_or_not_at_all(given: Any, texts: tuple[str, ...]) -> None:
    assert Config({"id2label": given}).numbered("id2label") == texts
