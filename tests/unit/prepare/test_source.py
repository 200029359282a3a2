"""Reading model files: what is not a model, and what tells one from another."""

import os
from pathlib import Path

import pytest
from onnx import helper

import models
from models import save, value
from snoozeml.errors import ModelFailed
from snoozeml.prepare.source import read_source


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello, this is not a model", id="text"),
        pytest.param(bytes(1000), id="zeros"),
        pytest.param(b"\x08\x0a", id="a version and nothing else"),
    ],
)
def test_a_file_that_is_not_a_model_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFailed, match=r"^model\.onnx is not an ONNX model"):
        read_source(path)


def test_a_truncated_model_is_named(tmp_path: Path) -> None:
    path = models.linear_model(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ModelFailed, match="is not an ONNX model, or only part of one"):
        read_source(path)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")  # opening it would hang
    for path in (tmp_path / "pipe.onnx", tmp_path, Path("/dev/zero")):
        with pytest.raises(ModelFailed, match="is not a regular file"):
            read_source(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(ModelFailed, match=r"model file not found: model\.onnx"):
        read_source(path)


def test_the_key_depends_on_content_and_toolchain_alone(tmp_path: Path) -> None:
    one = read_source(models.linear_model(tmp_path / "one.onnx"))
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "copy.onnx"
    copy.write_bytes(one.path.read_bytes())
    other = read_source(models.linear_model(tmp_path / "other.onnx", seed=1))
    assert read_source(copy).key("a") == one.key("a")
    assert len({one.key("a"), one.key("b"), other.key("a")}) == 3


def test_the_key_depends_on_external_data(tmp_path: Path) -> None:
    path = models.external_data_model(tmp_path / "model.onnx")
    before = read_source(path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(weights.stat().st_size))
    assert read_source(path).key("a") != before.key("a")
    assert [Path(stamp.path) for stamp in before.stamps] == [path, weights]


def test_a_change_after_reading_is_noticed(tmp_path: Path) -> None:
    path = models.external_data_model(tmp_path / "model.onnx")
    source = read_source(path)
    source.check_unchanged()
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelFailed, match=r"weights\.bin changed while"):
        source.check_unchanged()


def test_inputs_of_unknown_rank_are_listed(tmp_path: Path) -> None:
    unranked = helper.make_tensor_value_info("y", models.FLOAT, None)
    add = helper.make_node("Add", ["x", "y"], ["z"])
    path = save(tmp_path / "m.onnx", [add], [value("x", [None]), unranked], [value("z", [None])])
    assert read_source(path).unranked_inputs == {"y"}
