"""`snooze init` leaves a file that a daemon accepts and that changes nothing yet."""

import tomllib
from pathlib import Path

import pytest

from snoozeml.config.loading import Overrides, load
from snoozeml.config.schema import Configuration
from unit.cli.harness import snooze


def configuration(models_dir: Path) -> Configuration:
    return load(Overrides(models_dir=models_dir), {"SNOOZE_CACHE_DIR": "/unused"})


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    for name in ("iris.onnx", 'a "b" #1.onnx', "日本語.onnx"):
        (tmp_path / name).touch()
    return tmp_path


def test_the_file_names_every_model_and_changes_no_setting(models_dir: Path) -> None:
    before = configuration(models_dir)
    result = snooze("init", "--models-dir", str(models_dir))
    assert result.exit_code == 0
    after = configuration(models_dir)
    assert after.models == before.models
    written = tomllib.loads((models_dir / "models.toml").read_text(encoding="utf-8"))
    assert written["models"].keys() == {"iris", 'a "b" #1', "日本語"}


def test_every_line_that_is_commented_out_is_a_setting_that_works(models_dir: Path) -> None:
    before = configuration(models_dir)
    snooze("init", "--models-dir", str(models_dir))
    path = models_dir / "models.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    settings = [line.removeprefix("# ") if " = " in line else line for line in lines]
    assert settings != lines
    path.write_text("\n".join(settings), encoding="utf-8")
    assert configuration(models_dir).models == before.models


def test_it_says_what_to_do_next(models_dir: Path) -> None:
    said = snooze("init", "--models-dir", str(models_dir)).stdout
    assert '3 models: a "b" #1, iris, 日本語' in said
    assert f"Next: snooze serve --models-dir {models_dir}" in said


def test_what_is_nearly_a_model_is_told(models_dir: Path) -> None:
    (models_dir / "wine.pkl").touch()
    assert "not served: wine.pkl. Pickles" in snooze("init", "--models-dir", str(models_dir)).stdout


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "models"
    result = snooze("init", "--models-dir", str(folder))
    assert result.exit_code == 0
    assert "put models into" in result.stdout
    for kind in (".onnx", "*.safetensors", ".ubj", ".lgb.txt", "snooze_model.py"):
        assert kind in result.stdout
    assert configuration(folder).models == ()


def test_the_usual_folder_needs_no_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNOOZE_MODELS_DIR", raising=False)
    assert "Then: snooze serve\n" in snooze("init").stdout
    assert (tmp_path / "models" / "models.toml").exists()


def test_somebodys_work_is_replaced_only_by_force(models_dir: Path) -> None:
    path = models_dir / "models.toml"
    path.write_text("# mine\n")
    refused = snooze("init", "--models-dir", str(models_dir))
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert path.read_text() == "# mine\n"
    assert snooze("init", "--models-dir", str(models_dir), "--force").exit_code == 0
    assert path.read_text() != "# mine\n"


def test_a_second_configuration_is_never_put_beside_the_first(models_dir: Path) -> None:
    (models_dir / "models.json").write_text("{}")
    result = snooze("init", "--models-dir", str(models_dir), "--force")
    assert result.exit_code == 1
    assert "models.json" in result.stderr


def test_two_models_of_one_name_are_told(models_dir: Path) -> None:
    (models_dir / "iris").mkdir()
    (models_dir / "iris" / "other.onnx").touch()
    result = snooze("init", "--models-dir", str(models_dir))
    assert result.exit_code == 1
    assert "two models have the id 'iris'" in result.stderr
    assert not (models_dir / "models.toml").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = snooze("init", "--models-dir", str(tmp_path / "file" / "models"))
    assert result.exit_code == 1
    assert "Not a directory" in result.stderr
