"""References to data outside the model file: what is let through, and what is refused."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from models import external_data_model, store_outside
from snoozeml.errors import ModelFailed
from snoozeml.prepare.external_data import external_files


def check(path: Path) -> list[Path]:
    return external_files(ModelProto.FromString(path.read_bytes()), path.parent)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, in a place with other things that are none of the model's business.

    The pipe has no writer: a reader that opened it would hang.
    """
    (tmp_path / "secret").write_bytes(bytes(1 << 16))
    os.mkfifo(tmp_path / "pipe")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "inside").mkdir()
    (folder / "real").write_bytes(bytes(1 << 16))
    (folder / "link_inside").symlink_to("real")
    (folder / "link_outside").symlink_to("../secret")
    (folder / "link_to_link").symlink_to("link_outside")
    (folder / "folder_link").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    (folder / "pipe_link").symlink_to("../pipe")
    (folder / "device_link").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe_inside")
    (folder / "real*").write_bytes(bytes(1 << 16))
    return folder


def test_the_usual_file_beside_the_model_is_fine(tmp_path: Path) -> None:
    assert check(external_data_model(tmp_path / "model.onnx")) == [tmp_path / "weights.bin"]


def test_a_location_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = external_data_model(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes().replace(b"weights.bin", b"\xffeights.bin"))
    with pytest.raises(ModelFailed, match="a file whose name is no text"):
        check(path)


@pytest.mark.parametrize("location", ["real", "link_inside", "./real"])
def test_a_regular_file_inside_the_folder_is_fine(folder: Path, location: str) -> None:
    path = external_data_model(folder / "model.onnx", location)
    assert check(path) == [folder / location]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("", "not a file name"),
        ("re\0al", "not a file name"),
        ("/dev/zero", "absolute"),
        ("/etc/passwd", "absolute"),
        ("../secret", "'..'"),
        ("inside/../../secret", "'..'"),
        ("inside/../real", "'..'"),
        ("..", "'..'"),
        ("link_outside", "outside"),
        ("link_to_link", "outside"),
        ("folder_link/secret", "outside"),
        ("pipe_link", "outside"),
        ("device_link", "outside"),
        ("pipe_inside", "not a regular file"),
        ("inside", "not a regular file"),
        (".", "not a regular file"),
        ("missing", "no such file"),
        ("real/below", "cannot be resolved"),
        ("loop", "cannot be resolved"),
        pytest.param("x" * 5000, "cannot be resolved", id="too long"),
        ("real*", "star"),
        ("*/_ORT_MEM_ADDR_/*", "star"),
    ],
)
def test_everything_else_is_refused(folder: Path, location: str, why: str) -> None:
    path = external_data_model(folder / "model.onnx", location)
    with pytest.raises(ModelFailed) as failure:
        check(path)
    assert why in failure.value.message
    assert "'matrix'" in failure.value.message
    assert f"{location!r:.120}" in failure.value.message


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"offset": "-1"}, "negative"),
        ({"length": "-1"}, "negative"),
        ({"offset": "x"}, "not a number"),
        ({"length": "1e3"}, "not a number"),
        ({"offset": "1"}, "do not exist"),
        ({"length": "16385"}, "do not exist"),
        ({"offset": str(1 << 70)}, "do not exist"),
    ],
)
def test_a_range_outside_of_the_file_is_refused(
    tmp_path: Path, fields: dict[str, str], why: str
) -> None:
    path = external_data_model(tmp_path / "model.onnx")
    model = ModelProto.FromString(path.read_bytes())
    for entry in model.graph.initializer[0].external_data:
        entry.value = fields.get(entry.key, entry.value)
    with pytest.raises(ModelFailed, match=why):
        external_files(model, tmp_path)


def test_a_second_location_does_not_hide_behind_the_first(tmp_path: Path) -> None:
    path = external_data_model(tmp_path / "model.onnx")
    model = ModelProto.FromString(path.read_bytes())
    model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(ModelFailed, match="twice"):
        external_files(model, tmp_path)


def outside_tensor() -> TensorProto:
    tensor = numpy_helper.from_array(np.zeros(4, dtype=np.float32), "hidden")
    store_outside(tensor, "../secret")
    return tensor


def constant() -> NodeProto:
    return helper.make_node("Constant", [], ["c"], value=outside_tensor())


def graph(*nodes: NodeProto) -> GraphProto:
    return helper.make_graph(list(nodes), "g", [], [])


def in_sparse_initializer(model: ModelProto) -> None:
    indices = numpy_helper.from_array(np.zeros(4, dtype=np.int64), "indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(outside_tensor(), indices, [8]))


def in_subgraph(model: ModelProto) -> None:
    branches = {"then_branch": graph(constant()), "else_branch": graph(constant())}
    model.graph.node.append(helper.make_node("If", ["flag"], ["y"], **branches))


def in_initializer_of_subgraph(model: ModelProto) -> None:
    body = graph()
    body.initializer.append(outside_tensor())
    model.graph.node.append(helper.make_node("Loop", ["n"], ["y"], body=body))


def in_function(model: ModelProto) -> None:
    model.functions.append(helper.make_function("d", "f", [], ["c"], [constant()], []))


def in_training_info(model: ModelProto) -> None:
    model.training_info.add().algorithm.CopyFrom(graph(constant()))


def in_list_attribute(model: ModelProto) -> None:
    node = model.graph.node.add(op_type="Anything")
    node.attribute.add(name="many", type=TensorProto.FLOAT).tensors.append(outside_tensor())


@pytest.mark.parametrize(
    "hide",
    [
        lambda model: model.graph.initializer.append(outside_tensor()),
        lambda model: model.graph.node.append(constant()),
        in_sparse_initializer,
        in_subgraph,
        in_initializer_of_subgraph,
        in_function,
        in_training_info,
        in_list_attribute,
    ],
)
def test_a_reference_is_found_wherever_it_hides(
    tmp_path: Path, hide: Callable[[ModelProto], None]
) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    (tmp_path / "model").mkdir()
    model = helper.make_model(graph())
    hide(model)
    with pytest.raises(ModelFailed, match="hidden"):
        external_files(model, tmp_path / "model")


def test_a_reference_counts_even_if_the_tensor_claims_to_be_complete(tmp_path: Path) -> None:
    tensor = outside_tensor()
    tensor.data_location = TensorProto.DEFAULT
    model = helper.make_model(graph())
    model.graph.initializer.append(tensor)
    with pytest.raises(ModelFailed, match="hidden"):
        external_files(model, tmp_path)
