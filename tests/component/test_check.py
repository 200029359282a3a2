"""`python -m snoozeml.worker --check`: what an author sees."""

import subprocess
import sys
from pathlib import Path

import pytest

from python_models import python_model


def check(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "snoozeml.worker", "--check", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_a_good_model_is_loaded_and_run_once(tmp_path: Path) -> None:
    python_model(tmp_path, load='print("from load")')
    status, out, err = check(tmp_path, "--input", "x:4x3")
    assert (status, err) == (0, "")
    assert out.startswith("from load\nloaded in ")
    assert "y: FP32 [4, 3]: " in out


def test_datatypes_and_scalars_may_be_named(tmp_path: Path) -> None:
    python_model(tmp_path, 'print(inputs); return {"y": inputs["ids"] + inputs["k"]}')
    status, out, _ = check(tmp_path, "--input", "ids:2x3:INT64", "--input", "k:", "--device", "cpu")
    assert status == 0
    assert "array([[1, 1, 1]" in out
    assert "y: FP64 [2, 3]: " in out


def test_what_the_manifest_declares_needs_no_arguments(tmp_path: Path) -> None:
    tensors = [{"name": "t", "datatype": "BYTES", "shape": [-1, 3]}]
    python_model(tmp_path, 'return {"n": [[1]] * len(inputs["t"])}', inputs=tensors)
    status, out, _ = check(tmp_path)
    assert status == 0
    assert "n: INT64 [2, 1]: 1, 1\n" in out
    status, _, err = check(tmp_path, "--input", "x:2x3")
    assert status == 1
    assert "invalid_input: the model takes 't', got 'x'" in err
    status, _, err = check(tmp_path, "--input", "t:2x4:BYTES")
    assert status == 1
    assert "shape_mismatch: " in err


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    status, out, err = check(tmp_path / "nowhere")
    assert (status, out) == (1, "")
    assert err == f"--check {tmp_path / 'nowhere'}: there is no such folder\n"


def test_a_file_is_not_called_absent(tmp_path: Path) -> None:
    (tmp_path / "wine.onnx").touch()
    status, _, err = check(tmp_path / "wine.onnx")
    assert status == 1
    assert err.endswith("wine.onnx: is a file; it takes the folder of a Python model\n")


def test_a_light_installation_says_what_to_install(tmp_path: Path) -> None:
    without = f"""
import runpy, sys
sys.modules["numpy"], sys.argv[1:] = None, ["--check", {str(tmp_path)!r}]
runpy.run_module("snoozeml.worker", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "--check needs the daemon's libraries: pip install 'snoozeml[server]' (numpy is missing)\n"
    )


def test_outputs_without_rows_are_pointed_out(tmp_path: Path) -> None:
    status, out, _ = check(python_model(tmp_path, 'return {"y": [1]}'), "--input", "x:4x3")
    assert status == 0
    assert "warning: y has not one row per row of the inputs" in out


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"predict": 'return {"y": inputs["z"]}'}, ["line 8", "invalid_input: KeyError: 'z'"]),
        ({"load": "1 / 0"}, ["line 5", "model_failed: ZeroDivisionError"]),
        ({"head": "def"}, ["SyntaxError", "model_failed: SyntaxError: invalid syntax"]),
        ({"predict": "import sys; sys.exit(0)"}, ["called sys.exit(0)"]),
    ],
)
def test_failures_come_with_their_traceback(
    tmp_path: Path, how: dict[str, str], words: list[str]
) -> None:
    status, _, err = check(python_model(tmp_path, **how), "--input", "x:1")
    assert status == 1
    assert err.count("Traceback") == 1
    assert all(word in err for word in words), err


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    status, _, err = check(tmp_path, "--input", "x:1")
    assert status == 1
    assert err.startswith("model_failed: there is no snooze_model.py")


def test_inputs_must_be_named_where_the_manifest_does_not(tmp_path: Path) -> None:
    status, _, err = check(python_model(tmp_path))
    assert status == 1
    assert "name them: --input input:4x3" in err


@pytest.mark.parametrize("text", ["x", "x:4x", "x:4:FLOAT", ":4", "x:-1"])
def test_a_wrong_argument_is_wrong_usage(tmp_path: Path, text: str) -> None:
    status, _, err = check(python_model(tmp_path), "--input", text)
    assert status == 2
    assert f"--input {text}: must be like input:4x3" in err
