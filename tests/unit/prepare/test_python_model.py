"""What a folder of Python code says about itself, without being run."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from python_models import plan, python_model
from snoozeml.core.manifest import read_manifest
from snoozeml.core.plan import PrepareJob, PrepareOutcome
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import ModelFailed
from snoozeml.prepare.python_model import prepare

X = {"name": "x", "datatype": "FP32", "shape": [-1, None, "n", 4]}
Y = {"name": "y", "datatype": "INT64", "shape": ["rows"]}


def outcome(folder: Path) -> PrepareOutcome:
    job = PrepareJob(
        model_path=str(folder), format="python", toolchain="", cache_dir="", cache_limit_bytes=0
    )
    return prepare(job)


def test_without_a_manifest_anything_goes_in_and_out(tmp_path: Path) -> None:
    made = plan(python_model(tmp_path))
    assert made.signature == Signature((), (), open_inputs=True, open_outputs=True)
    assert (made.batching, made.graph, made.prepared) == ("merge", str(tmp_path), True)


def test_declared_tensors_are_the_signature(tmp_path: Path) -> None:
    made = plan(python_model(tmp_path, inputs=[X], outputs=[Y]))
    assert made.signature == Signature(
        (TensorSpec("x", "FP32", (None, None, "n", 4), 0),),
        (TensorSpec("y", "INT64", ("rows",), 0),),
    )


def test_inputs_may_be_declared_without_outputs(tmp_path: Path) -> None:
    signature = plan(python_model(tmp_path, inputs=[X])).signature
    assert (signature.open_inputs, signature.open_outputs) == (False, True)


@pytest.mark.parametrize(
    "manifest",
    [
        {"batching": False},
        {"batching": "off"},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3, 4]}]},
        {"inputs": [X], "outputs": [{"name": "loss", "datatype": "FP32", "shape": []}]},
    ],
)
def test_what_has_no_rows_or_shall_not_be_merged_runs_alone(
    tmp_path: Path, manifest: dict[str, Any]
) -> None:
    made = plan(python_model(tmp_path, **manifest))
    assert made.batching == "alone"
    assert all(spec.batch_axis is None for spec in made.signature.inputs)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ('{"entrypoint": ', ["is not JSON"]),
        ("[]", ["Expected `object`, got `array`"]),
        ('{"pythn": "x"}', ["unknown field `pythn`", "its keys are entrypoint, class, "]),
        ('{"tensor_format": "torch"}', ["Invalid enum value 'torch'", "$.tensor_format"]),
        ('{"env": {"A": 1}}', ["Expected `str`, got `int`", "$.env"]),
        ('{"env": {"A=B": "x"}}', ["env: 'A=B'", "neither '=' nor NUL"]),
        (r'{"env": {"A": "x\u0000"}}', ["env: 'A'", "NUL"]),
        ('{"class": ""}', ["length >= 1", "$.class"]),
        ('{"entrypoint": "../m.py"}', ["'../m.py' must lie in the model's folder"]),
        ('{"entrypoint": "/m.py"}', ["'/m.py' must lie in the model's folder"]),
        ('{"entrypoint": "m.py"}', ["there is no m.py in the model's folder"]),
        ('{"python": "venv/bin/python"}', ["'venv/bin/python' is no program", "model's folder"]),
        ('{"python": "/nowhere/python"}', ["'/nowhere/python' is no program"]),
        ('{"python": "no-such-python"}', ["'no-such-python' is no program", "on the PATH"]),
        ('{"python": "./snooze_model.py"}', ["is no program"]),
        ('{"inputs": []}', ["inputs: is empty; leave it out"]),
        ('{"inputs": [{"name": "x", "datatype": "FP32"}]}', ["missing required field `shape`"]),
        ('{"inputs": [{"name": "x", "datatype": "F32", "shape": [1]}]}', ["Invalid enum", "F32"]),
        ('{"inputs": [{"name": "x", "datatype": "BF16", "shape": [1]}]}', ["'x' is BF16"]),
        ('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-2]}]}', ["below -1"]),
        (json.dumps({"outputs": [Y, Y]}), ["outputs: 'y' is there 2 times"]),
        (json.dumps({"tensor_format": "raw", "outputs": [Y]}), ["'y' is INT64", "raw", "FP32"]),
    ],
)  # fmt: skip
def test_a_wrong_manifest_is_told_with_what_would_be_right(
    tmp_path: Path, manifest: str, words: list[str]
) -> None:
    (python_model(tmp_path) / "snooze_model.json").write_text(manifest)
    with pytest.raises(ModelFailed) as error:
        plan(tmp_path)
    assert all(word in error.value.message for word in words), error.value.message
    assert str(tmp_path) not in error.value.message


def test_a_manifest_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(python_model(tmp_path) / "snooze_model.json")
    with pytest.raises(ModelFailed, match="is not a regular file"):
        plan(tmp_path)


def test_interpreters_may_be_named_by_path_or_as_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = python_model(tmp_path / "model", python="venv/bin/python")
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/bin/python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(folder / "venv/bin"))
    for name in ("venv/bin/python", "python", sys.executable):
        python_model(folder, python=name)
        manifest = plan(folder).manifest
        assert manifest is not None
        assert manifest.interpreter(folder, "own").endswith(("venv/bin/python", sys.executable))


def test_the_plan_is_good_until_a_file_of_the_model_changes(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "model")
    (folder / "weights.bin").write_bytes(b"1")
    (folder / "sub").mkdir()
    (folder / "sub" / "helper.py").touch()
    for changed in ("weights.bin", "sub/helper.py", "snooze_model.py", "snooze_model.json"):
        stamps = outcome(folder).stamps
        assert all(stamp.holds() for stamp in stamps)
        (folder / changed).write_text("{}  ")
        assert not all(stamp.holds() for stamp in stamps), changed


def test_files_whose_names_are_no_text_are_not_watched(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "model")
    (folder / os.fsdecode(b"data\xff.bin")).touch()
    encoded = msgspec.json.encode(outcome(folder))
    assert msgspec.json.decode(encoded, type=PrepareOutcome) == outcome(folder)


def test_only_what_belongs_to_the_model_counts(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "model")
    for name in (".git/pack", "__pycache__/x.pyc", "own/pyvenv.cfg", "own/lib/numpy.so", ".hidden"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10**6)
    (folder / "weights.bin").write_bytes(b"x" * 1000)
    (folder / "link").symlink_to("nowhere")
    made = outcome(folder)
    assert made.plan is not None
    assert 1000 < made.plan.weights_bytes < 2000
    assert [Path(stamp.path).name for stamp in made.stamps] == [
        "snooze_model.json", "snooze_model.py", "weights.bin",
    ]  # fmt: skip


@pytest.mark.parametrize("entrypoint", ["x" * 300, "a\0b"])
def test_an_entrypoint_that_no_file_can_be_called(tmp_path: Path, entrypoint: str) -> None:
    (tmp_path / "snooze_model.json").write_text(json.dumps({"entrypoint": entrypoint}))
    with pytest.raises(ModelFailed, match="in the model's folder"):
        read_manifest(tmp_path)
