"""How entries and files find each other."""

import pytest

from snoozeml.config.loading import ConfigError
from unit.config.house import House


def test_an_entry_configures_the_model_found_under_its_id(house: House) -> None:
    house.add("iris.onnx", "wine.onnx")
    house.write("[models.iris]\nmax_batch_size = 7")
    assert house.batch_sizes() == {"iris": 7, "wine": 16}


@pytest.mark.parametrize("path", ["bge/model.onnx", "./bge/model.onnx", "bge/../bge/model.onnx"])
def test_an_entry_with_the_path_of_a_found_file_makes_no_second_model(
    house: House, path: str
) -> None:
    house.add("bge/model.onnx")
    house.write(f'[models.bge]\npath = "{path}"\npinned = true')
    assert house.files() == {"bge": "bge/model.onnx"}
    assert house.models()["bge"].pinned


def test_a_path_through_a_link_is_the_found_file(house: House) -> None:
    house.add("bge/model.onnx")
    (house.folder / "alias").symlink_to("bge")
    house.write('[models.bge]\npath = "alias/model.onnx"')
    assert house.files() == {"bge": "bge/model.onnx"}


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("bge", "safetensors"),
        ("bge/", "safetensors"),
        ("bge/model-00002-of-00002.safetensors", "safetensors"),
        ("bge/model.safetensors.index.json", "safetensors"),
        ("alias", "safetensors"),
        ("alias/model-00002-of-00002.safetensors", "safetensors"),
        ("own", "python"),
        ("own/snooze_model.py", "python"),
        ("own/snooze_model.json", "python"),
    ],
)
def test_a_folder_that_is_a_model_may_be_named_by_what_makes_it_one(
    house: House, path: str, format_: str
) -> None:
    house.add("bge/config.json", "bge/model.safetensors.index.json")
    house.add("bge/model-00001-of-00002.safetensors", "bge/model-00002-of-00002.safetensors")
    house.add("own/snooze_model.py", "own/snooze_model.json")
    (house.folder / "alias").symlink_to("bge")
    house.write(f'[models.mine]\npath = "{path}"')
    mine = house.models()["mine"]
    folder = "own" if format_ == "python" else "bge"
    assert (mine.path, mine.format) == (house.folder.resolve() / folder, format_)
    assert len(house.models()) == 2  # it is not served under its folder's name as well


def test_of_several_checkpoints_the_one_that_an_entry_names_is_served(house: House) -> None:
    house.add("bge/config.json", "bge/float.safetensors", "bge/half.safetensors")
    house.write(
        '[models.one]\npath = "bge/float.safetensors"\n'
        '[models.other]\npath = "bge/half.safetensors"'
    )
    assert house.files() == {"one": "bge/float.safetensors", "other": "bge/half.safetensors"}


def test_any_json_file_that_is_said_to_be_a_model_is_xgboost(house: House) -> None:
    house.add("booster.json")
    assert house.models() == {}
    house.write('[models.mine]\npath = "booster.json"')
    assert house.models()["mine"].format == "xgboost"


def test_a_file_inside_a_python_model_is_served_only_when_an_entry_names_it(house: House) -> None:
    house.add("own/snooze_model.py", "own/part.onnx")
    house.write('[models.part]\npath = "own/part.onnx"')
    assert house.files() == {"own": "own", "part": "own/part.onnx"}


def test_an_entry_may_give_a_file_another_id(house: House) -> None:
    house.add("bge/model.onnx")
    house.write('[models."text.embedder"]\npath = "bge/model.onnx"')
    assert house.files() == {"text.embedder": "bge/model.onnx"}


def test_one_file_may_have_two_ids_with_different_settings(house: House) -> None:
    house.add("iris.onnx")
    house.write(
        '[models.one]\npath = "iris.onnx"\n[models.many]\npath = "iris.onnx"\nmax_batch_size = 64'
    )
    assert house.batch_sizes() == {"one": 16, "many": 64}


def test_an_entry_keeps_its_model_when_a_namesake_is_served_under_another_id(house: House) -> None:
    house.add("a/x.onnx", "a/y.onnx", "b/x.onnx", "b/z.onnx")
    house.write('[models.x]\npinned = true\n[models.other]\npath = "a/x.onnx"')
    assert house.files()["x"] == "b/x.onnx"


def test_a_new_id_resolves_a_collision(house: House) -> None:
    house.add("a/x.onnx", "a/y.onnx", "b/x.onnx", "b/z.onnx")
    house.write('[models.other]\npath = "b/x.onnx"')
    assert house.files() == {"x": "a/x.onnx", "y": "a/y.onnx", "other": "b/x.onnx", "z": "b/z.onnx"}


def test_a_new_id_helps_a_file_whose_name_makes_none(house: House) -> None:
    house.add("back\\slash.onnx")
    house.write("[models.good]\npath = 'back\\slash.onnx'")
    assert list(house.models()) == ["good"]


def test_a_freed_id_may_be_given_to_another_file(house: House) -> None:
    house.add("old.onnx", "new.onnx")
    house.write('[models.old]\npath = "new.onnx"\n[models.older]\npath = "old.onnx"')
    assert house.files() == {"old": "new.onnx", "older": "old.onnx"}


def test_a_path_may_lead_deeper_and_outside(house: House) -> None:
    House(house.folder.parent / "elsewhere").add("far.onnx")
    house.add("a/b/c/deep.onnx")
    house.write(
        '[models.deep]\npath = "a/b/c/deep.onnx"\n[models.far]\npath = "../elsewhere/far.onnx"'
    )
    assert sorted(house.models()) == ["deep", "far"]


def test_ids_with_dots_spaces_and_any_script(house: House) -> None:
    house.add("bge-v1.5.onnx", "a model.onnx", "モデル.onnx")
    house.write(
        '[models."bge-v1.5"]\npinned = true\n[models."a model"]\npinned = true\n'
        "[models.'モデル']\npinned = true"
    )
    assert all(model.pinned for model in house.models().values())


def test_a_decomposed_id_in_a_file_is_the_composed_one(house: House) -> None:
    house.add("caf\u00e9.onnx")
    house.write('[models."cafe\u0301"]\npinned = true')
    assert house.models()["caf\u00e9"].pinned


def test_an_entry_may_not_take_the_id_of_another_file(house: House) -> None:
    house.add("iris.onnx", "wine.onnx")
    house.write('[models.wine]\npath = "iris.onnx"')
    with pytest.raises(ConfigError, match=r"two models have the id 'wine'.*iris.*wine\.onnx"):
        house.load()


def test_models_are_sorted_by_id(house: House) -> None:
    house.add("b.onnx", "B.onnx", "a/model.onnx", "c.onnx")
    house.write('[models.aa]\npath = "c.onnx"')
    assert [model.id for model in house.load().models] == ["B", "a", "aa", "b"]
