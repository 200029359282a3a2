"""Files that look like models and are called otherwise: what is said of them, and of which not."""

from pathlib import Path

import pytest

from unit.config.house import House

XGBOOST = '{"learner":{"attributes":{}}}'
LIGHTGBM = "tree\nversion=v4\n"


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("plain.json", XGBOOST, "*.xgb.json, or be named with `path`"),
        ("wine/model.json", XGBOOST, "*.xgb.json"),
        ("other.txt", LIGHTGBM, "*.lgb.txt"),
        ("wine.pkl", "", "export the model to ONNX"),
        ("wine.JOBLIB", "", "export the model to ONNX"),
    ],
)
def test_what_looks_like_a_model_is_told_what_to_do(
    house: House, name: str, content: str, advice: str
) -> None:
    house.add(name)
    house.write(content, name)
    (told,) = house.load().overlooked
    assert told.startswith(f"not served: {name}. ")
    assert advice in told


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("labels.txt", "cat\ndog\n"),
        ("notes.json", "{}"),
        (".hidden.pkl", ""),
        (".hidden/wine.pkl", ""),
        ("deep/er/wine.pkl", ""),
        ("wine.xgb.json", XGBOOST),
        ("wine.lgb.txt", LIGHTGBM),
        ("python/weights.pkl", ""),
        ("python/booster.txt", LIGHTGBM),
    ],
)
def test_of_other_files_nothing_is_said(house: House, name: str, content: str) -> None:
    house.add("python/snooze_model.py", name)
    house.write(content, name)
    assert house.load().overlooked == ()


def test_a_file_that_an_entry_names_is_served(house: House) -> None:
    house.write(XGBOOST, "plain.json")
    house.write('[models.wine]\npath = "plain.json"')
    assert house.load().overlooked == ()


def test_links_change_nothing(house: House, tmp_path: Path) -> None:
    house.add("python/snooze_model.py", "python/weights.pkl", "wine.pkl")
    (house.folder / "linked").symlink_to("python")
    (tmp_path / "elsewhere").symlink_to(house.folder)
    (told,) = house.load(models_dir=tmp_path / "elsewhere").overlooked
    assert told.startswith("not served: wine.pkl. ")


def test_many_files_make_one_sentence(house: House) -> None:
    house.add(*(f"{number}.pkl" for number in range(7)), "\x1b[31m.pkl")
    (told,) = house.load().overlooked
    assert told.startswith("not served: \\x1b[31m.pkl, 0.pkl, 1.pkl, 2.pkl, 3.pkl and 3 more. ")


def test_what_cannot_be_read_is_let_alone(house: House) -> None:
    house.add("plain.json")
    (house.folder / "plain.json").unlink()
    (house.folder / "plain.json").symlink_to("/dev/null")
    (house.folder / "gone.json").symlink_to("nowhere")
    assert house.load().overlooked == ()
