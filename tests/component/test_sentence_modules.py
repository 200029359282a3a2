"""Modules after an encoder that we do not have, or that contradict each other, are named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golden.safetensors.compare import HERE
from jobs import prepare_job
from snoozeml.errors import ModelFailed, UnsupportedArchitecture
from snoozeml.prepare.safetensors.model import prepare
from snoozeml.prepare.safetensors.sentence import MODULES_FILE

Modules = list[dict[str, Any]]

POOLING, DENSE, NORMALIZE = "1_Pooling", "2_Dense", "5_Normalize"


def refusal(kind: type[Exception], folder: Path, change: Callable[[Modules, Path], object]) -> str:
    """Why the golden model with a dense layer is refused when something about it is changed."""
    model = folder / "model"
    shutil.copytree(HERE / "sentence-dense", model)
    modules = json.loads((model / MODULES_FILE).read_bytes())
    change(modules, model)
    (model / MODULES_FILE).write_text(json.dumps(modules))
    job = prepare_job(model, "safetensors", folder / "cache")
    with pytest.raises(kind) as refused:
        prepare(job)
    return str(refused.value)


def configure(module: str, **changes: Any) -> Callable[[Modules, Path], object]:
    def change(_: Modules, model: Path) -> None:
        file = model / module / "config.json"
        settings = json.loads(file.read_bytes()) if file.exists() else {}
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(settings | changes))

    return change


def test_an_unknown_module_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    def change(modules: Modules, _: Path) -> None:
        modules[2]["type"] = "sentence_transformers.models.LSTM"

    message = refusal(UnsupportedArchitecture, tmp_path, change)
    assert message == (
        "modules.json names the module LSTM; supported:"
        " Pooling, Dense, Dropout, LayerNorm, Normalize"
    )


@pytest.mark.parametrize(
    ("module", "changes", "where"),
    [
        (POOLING, {"pooling_mode": "median"}, "1_Pooling/config.json: pooling_mode = 'median'"),
        (POOLING, {"pooling_mode": ["mean", "median"]}, "pooling_mode = 'median'"),
        (DENSE, {"activation_function": "mine.Tanh"}, "activation_function = 'mine.Tanh'"),
        (DENSE, {"activation_function": "torch.nn.Hardtanh"}, "the activation 'hardtanh'"),
        (
            DENSE,
            {"module_input_name": "token_embeddings"},
            "2_Dense/config.json: module_input_name",
        ),
        (NORMALIZE, {"module_output_name": "unit"}, "5_Normalize/config.json: module_output_name"),
    ],
)
def test_an_option_that_is_not_built_is_named(
    module: str, changes: dict[str, Any], where: str, tmp_path: Path
) -> None:
    message = refusal(UnsupportedArchitecture, tmp_path, configure(module, **changes))
    assert where in message
    assert "is not supported" in message


def test_a_pooling_must_come_first(tmp_path: Path) -> None:
    message = refusal(ModelFailed, tmp_path, lambda modules, _: modules.pop(1))
    assert message == "modules.json must list a Pooling right after the Transformer"


def test_a_pooling_must_not_come_twice(tmp_path: Path) -> None:
    message = refusal(ModelFailed, tmp_path, lambda modules, _: modules.append(modules[1]))
    assert message == "modules.json lists a Pooling that is not right after the Transformer"


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "\0", "loop", "x" * 300])
def test_a_module_outside_the_folder_is_refused(path: str, tmp_path: Path) -> None:
    def change(modules: Modules, model: Path) -> None:
        modules[2]["path"] = path
        (model / "loop").symlink_to("loop")

    message = refusal(ModelFailed, tmp_path, change)
    assert message == f"modules.json names {path!r}, which is not inside the folder"


def test_a_module_without_its_weights_is_named(tmp_path: Path) -> None:
    def change(_: Modules, model: Path) -> None:
        (model / DENSE / "model.safetensors").unlink()

    message = refusal(ModelFailed, tmp_path, change)
    assert message == "there is no safetensors file in 2_Dense"


def test_a_list_of_something_else_is_refused(tmp_path: Path) -> None:
    message = refusal(ModelFailed, tmp_path, lambda modules, _: modules.append({"path": 5}))
    assert message.startswith("modules.json is not a list of modules: ")
