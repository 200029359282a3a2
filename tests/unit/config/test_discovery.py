"""Which models a folder holds, and what they are called."""

import os
import unicodedata
from pathlib import Path

import pytest

from snoozeml.config.discovery import discover
from snoozeml.config.loading import ConfigError
from unit.config.house import House


@pytest.mark.parametrize(
    ("files", "ids"),
    [
        ([], {}),
        (["iris.onnx"], {"iris": "iris.onnx"}),
        (["Iris.ONNX"], {"Iris": "Iris.ONNX"}),
        (["bge-v1.5.onnx"], {"bge-v1.5": "bge-v1.5.onnx"}),
        (["notes.txt", "iris.onnx.bak", "onnx", "weights.onnx.data", "model.json"], {}),
        (["a.xgb.json", "b.tree.json", "c.xgb", "d.ubj", "e.lgb.txt", "f.v1.LGB.TXT"],
         {"a": "a.xgb.json", "b": "b.tree.json", "c": "c.xgb", "d": "d.ubj", "e": "e.lgb.txt",
          "f.v1": "f.v1.LGB.TXT"}),
        (["bge/model.onnx"], {"bge": "bge/model.onnx"}),
        (["bge/model.onnx", "bge/weights.bin"], {"bge": "bge/model.onnx"}),
        (["bge-v1.5/model.onnx"], {"bge-v1.5": "bge-v1.5/model.onnx"}),
        (["vad/a.onnx", "vad/b.onnx"], {"a": "vad/a.onnx", "b": "vad/b.onnx"}),
        (["deep/er/model.onnx"], {}),
        ([".hidden.onnx", ".cache/model.onnx", "bge/.part.onnx", "bge/model.onnx"],
         {"bge": "bge/model.onnx"}),
        (["lost+found/model.onnx"], {}),
        (["模型.onnx", "mädchen 🌷.onnx"], {"模型": "模型.onnx", "mädchen 🌷": "mädchen 🌷.onnx"}),
    ],
)  # fmt: skip
def test_ids_come_from_names(house: House, files: list[str], ids: dict[str, str]) -> None:
    house.add(*files)
    assert house.files() == ids


@pytest.mark.parametrize(
    ("file", "format_"),
    [
        ("wine.onnx", "onnx"),
        ("wine.xgb.json", "xgboost"),
        ("wine.tree.json", "xgboost"),
        ("wine.xgb", "xgboost"),
        ("wine.ubj", "xgboost"),
        ("wine.UBJ", "xgboost"),
        ("wine.xgb.ubj", "xgboost"),
        ("wine.lgb.txt", "lightgbm"),
        ("wine/model.xgb.json", "xgboost"),
        ("wine/snooze_model.py", "python"),
        ("wine/snooze_model.json", "python"),
    ],
)
def test_names_tell_the_format_and_no_suffix_is_part_of_an_id(
    house: House, file: str, format_: str
) -> None:
    house.add(file)
    (model,) = house.load().models
    assert (model.id, model.format) == ("wine", format_)


HUGGING_FACE = ["bge/config.json", "bge/model.safetensors", "bge/tokenizer.json"]


@pytest.mark.parametrize(
    ("files", "models"),
    [
        (HUGGING_FACE, {"bge": ("bge", "safetensors")}),
        (["bge/config.json", "bge/model-00001-of-00002.safetensors"],
         {"bge": ("bge", "safetensors")}),
        (["bge/model.safetensors"], {}),
        (["bge/config.json", "bge/tokenizer.json", "other.json", "notes.txt"], {}),
        ([*HUGGING_FACE, "bge/model.onnx"],
         {"bge": ("bge", "safetensors"), "model": ("bge/model.onnx", "onnx")}),
        ([*HUGGING_FACE, "bge/onnx/model.onnx"], {"bge": ("bge", "safetensors")}),
        ([*HUGGING_FACE, "bge/snooze_model.py"], {"bge": ("bge", "python")}),
        (["own/snooze_model.py", "own/model.onnx", "own/trees.ubj"], {"own": ("own", "python")}),
    ],
)  # fmt: skip
def test_a_folder_may_be_a_model(
    house: House, files: list[str], models: dict[str, tuple[str, str]]
) -> None:
    house.add(*files)
    root = house.folder.resolve()
    assert {
        id: (str(model.path.relative_to(root)), model.format)
        for id, model in house.models().items()
    } == models


def test_the_models_folder_may_be_a_model_itself(house: House) -> None:
    house.add("config.json", "model.safetensors", "model.onnx", "onnx/model.onnx", "a/b.onnx")
    assert house.files() == {"models": ".", "model": "model.onnx"}


def test_a_folder_that_is_called_like_a_file_is_a_folder(house: House) -> None:
    house.add("odd.onnx/model.onnx")
    assert house.files() == {"odd.onnx": "odd.onnx/model.onnx"}


def test_decomposed_file_names_give_composed_ids(house: House) -> None:
    house.add(unicodedata.normalize("NFD", "café.onnx"))
    assert list(house.models()) == [unicodedata.normalize("NFC", "café")]


def test_linked_files_and_folders_are_followed(house: House, tmp_path: Path) -> None:
    store = House(tmp_path / "store")
    store.add("4f2a.onnx", "snapshot/model.onnx")
    (house.folder / "iris.onnx").symlink_to(store.folder / "4f2a.onnx")
    (house.folder / "bge").symlink_to(store.folder / "snapshot")
    models = house.models()
    assert models["iris"].path.name == "iris.onnx"
    assert models["bge"].path == store.folder.resolve() / "snapshot" / "model.onnx"


@pytest.mark.parametrize("target", [".", "..", "../..", "/", "bge"])
def test_links_never_lead_in_circles_or_to_a_folder_twice(house: House, target: str) -> None:
    house.add("bge/model.onnx")
    (house.folder / "again").symlink_to(target)  # sorts before "bge"
    assert house.files() == {"bge": "bge/model.onnx"}


@pytest.mark.parametrize("target", ["loop.onnx", "nothing"])
def test_links_that_lead_nowhere_are_no_models(house: House, target: str) -> None:
    (house.folder / "loop.onnx").symlink_to(target)
    assert house.models() == {}


def test_the_models_folder_may_be_a_link(house: House, tmp_path: Path) -> None:
    house.add("iris.onnx")
    house.write('[models.iris]\npath = "iris.onnx"\npinned = true')
    link = tmp_path / "link"
    link.symlink_to(house.folder)
    (iris,) = house.load(models_dir=link).models
    assert iris.pinned


@pytest.mark.parametrize(
    "name",
    [b"new\nline.onnx", b"back\\slash.onnx"],
    ids=["line", "slash"],
)
def test_a_name_that_makes_no_id_is_told_with_a_way_out(house: House, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(house.folder) + b"/" + name)).touch()
    with pytest.raises(ConfigError, match=r"makes no model id.*rename it, or write an entry") as e:
        house.load()
    assert str(e.value).encode()  # printable, whatever the file is called


def test_a_missing_folder_is_told_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere: there is no such models folder; create it"):
        discover(tmp_path / "nowhere")


def test_a_file_is_no_models_folder(tmp_path: Path) -> None:
    (tmp_path / "models").touch()
    with pytest.raises(ConfigError, match=r"models: cannot be read: Not a directory"):
        discover(tmp_path / "models")


@pytest.mark.parametrize("name", [b"bad\xff.onnx", b"bad\xff/a.onnx", b"bad\xff/model.onnx"])
def test_what_has_a_name_that_is_no_text_is_passed_over_with_a_warning(
    house: House, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    house.add("good.onnx", "other/b.onnx", "other/c.onnx")
    path = Path(os.fsdecode(os.fsencode(house.folder) + b"/" + name))
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert house.files().keys() == {"good", "b", "c"}
    (warning,) = caplog.messages
    assert r"bad\xff" in warning


def test_a_checkpoint_that_is_no_safetensors_is_named_in_a_warning(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.add("old/config.json", "old/pytorch_model.bin", "new/config.json", "new/a.safetensors")
    house.add("both/config.json", "both/model.onnx", "both/weights.bin", "other/data.bin")
    assert house.files().keys() == {"new", "both"}
    (warning,) = caplog.messages
    for word in ("old", "config.json", "pytorch_model.bin", "*.safetensors"):
        assert word in warning


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_not_passed_over(house: House) -> None:
    house.add("private/model.onnx")
    (house.folder / "private").chmod(0)
    with pytest.raises(ConfigError, match="private: cannot be read: Permission denied"):
        house.load()


@pytest.mark.parametrize(
    ("files", "both"),
    [
        (["bge.onnx", "bge/model.onnx"], ["/bge.onnx", "bge/model.onnx"]),
        (["a/x.onnx", "a/m.onnx", "b/x.onnx", "b/n.onnx"], ["a/x.onnx", "b/x.onnx"]),
        (["wine.onnx", "wine.xgb.json"], ["/wine.onnx", "/wine.xgb.json"]),
        (["wine.ubj", "wine/snooze_model.py"], ["/wine.ubj", "models/wine"]),
        ([*HUGGING_FACE, "bge/bge.onnx"], ["models/bge ", "bge/bge.onnx"]),
        ([unicodedata.normalize(form, "é.onnx") for form in ("NFC", "NFD")], ["'é'"]),
    ],
)
def test_two_models_with_one_id_are_both_named(
    house: House, files: list[str], both: list[str]
) -> None:
    house.add(*files)
    with pytest.raises(ConfigError, match="two models have the id") as error:
        house.load()
    assert all(path in str(error.value) for path in both)
