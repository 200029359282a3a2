"""Inputs that are looked up in a table have the bounds that the table has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto
from onnx.helper import make_node

import models
from models import INT64, save, value
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.prepare.tables import table_sizes, with_bounds

INT32, BOOL = TensorProto.INT32, TensorProto.BOOL


def node(op: str, *inputs: str, to: str = "y", **attributes: Any) -> NodeProto:
    return make_node(op, inputs, [to], **attributes)


def look_up(*inputs: str, **attributes: Any) -> NodeProto:
    return node("Gather", *inputs, **attributes)


def cast(name: str, to: str, datatype: int) -> NodeProto:
    return make_node("Cast", [name], [to], to=datatype)


def sizes(path: Path, *nodes: NodeProto, datatype: int = INT64) -> dict[str, int]:
    tables: dict[str, models.Array] = {
        "table": np.zeros((50, 3), np.float32),
        "small": np.zeros((7, 3), np.float32),
        "one": np.array(1, np.int64),
        "axis": np.array([0], np.int64),
    }
    inputs = [value("ids", ["batch", "n"], datatype), value("matrix", ["rows", 3])]
    save(path, nodes, inputs, [value("y", [None, None, None])], tables)
    return table_sizes(ModelProto.FromString(path.read_bytes()))


@pytest.mark.parametrize(
    "nodes",
    [
        [look_up("table", "ids")],
        [look_up("table", "ids", axis=0)],
        [cast("ids", "a", INT32), look_up("table", "a")],
        [node("Identity", "ids", to="a"), node("Squeeze", "a", to="b"), look_up("table", "b")],
    ],
)
def test_values_that_reach_a_table_as_they_come_are_bounded(
    tmp_path: Path, nodes: list[NodeProto]
) -> None:
    assert sizes(tmp_path / "model.onnx", *nodes) == {"ids": 50}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Add", "ids", "one", to="a"), look_up("table", "a")],
        [cast("ids", "a", BOOL), cast("a", "b", INT64), look_up("table", "b")],
        [look_up("table", "ids", axis=1)],
        [look_up("matrix", "ids")],
        [look_up("ids", "one")],
        [look_up("table", "ids", domain="own")],
        [node("GatherElements", "table", "ids")],
        [look_up("table"), look_up(), node("Identity"), make_node("Cast", ["ids"], [])],
    ],
)
def test_others_are_not(tmp_path: Path, nodes: list[NodeProto]) -> None:
    assert sizes(tmp_path / "model.onnx", *nodes) == {}


def test_of_two_tables_the_smaller_counts(tmp_path: Path) -> None:
    both = look_up("table", "ids"), look_up("small", "ids", to="z")
    assert sizes(tmp_path / "model.onnx", *both) == {"ids": 7}
    assert sizes(tmp_path / "model.onnx", *reversed(both)) == {"ids": 7}


def test_tables_may_lie_outside_the_file(tmp_path: Path) -> None:
    path = models.pooling_model(tmp_path / "model.onnx")
    model = ModelProto.FromString(path.read_bytes())
    models.store_outside(model.graph.initializer[0], "weights.bin")
    assert table_sizes(model) == {"input_ids": 50}


def test_only_inputs_that_are_known_to_count_from_0_do_not_take_negative_indices() -> None:
    names = "input_ids", "token_type_ids", "position_ids", "item"
    inputs = tuple(TensorSpec(name, "INT64", ("batch",)) for name in names)
    bounded = with_bounds(Signature(inputs, ()), dict.fromkeys((*names, "gone"), 9))
    assert [spec.bounds for spec in bounded.inputs] == [(0, 9), (0, 9), (0, 9), (-9, 9)]


def test_what_has_no_negative_numbers_takes_none() -> None:
    signature = Signature((TensorSpec("item", "UINT8", ("batch",)),), ())
    assert with_bounds(signature, {"item": 9}).inputs[0].bounds == (0, 9)


def test_fractions_are_not_bounded() -> None:
    signature = Signature((TensorSpec("input_ids", "FP32", ("batch",)),), ())
    assert with_bounds(signature, {"input_ids": 9}) == signature
