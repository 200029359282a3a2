"""Which real models take rows of different lengths, as the trial sees it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import models
from models import INT64, save, value
from snoozeml.core.tensors import Signature
from snoozeml.prepare.batching import find_batching
from snoozeml.prepare.padding import find_padding
from snoozeml.prepare.signature import read_signature
from snoozeml.prepare.trials import trials_of

Build = Callable[[Path], Path]
NAMES = ("input_ids", "attention_mask")


def described(path: Path) -> Signature:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    signature = read_signature(session)
    with trials_of(session, signature) as tried:
        found, _ = find_batching(signature, tried.rows)
        return find_padding(found, tried.padding)


def ragged_axes(signature: Signature) -> dict[str, int]:
    specs = (*signature.inputs, *signature.outputs)
    return {s.name: s.ragged_axis for s in specs if s.ragged_axis is not None}


def changed(path: Path, build: Build, change: Callable[[onnx.GraphProto], None]) -> Path:
    model = onnx.load(build(path))
    change(model.graph)
    path.write_bytes(model.SerializeToString())
    return path


def renamed(path: Path) -> Path:
    """Like an encoder, but its inputs are called otherwise."""

    def rename(graph: onnx.GraphProto) -> None:
        for tensor in graph.input:
            tensor.name = tensor.name.replace("input_ids", "ids")
        for node in graph.node:
            node.input[:] = [name.replace("input_ids", "ids") for name in node.input]

    return changed(path, models.pooling_model, rename)


def with_lengths_of_their_own(path: Path) -> Path:
    def name_them(graph: onnx.GraphProto) -> None:
        for tensor in graph.input:
            tensor.type.tensor_type.shape.dim[1].dim_param = f"length of {tensor.name}"

    return changed(path, models.pooling_model, name_them)


def attention_map(path: Path) -> Path:
    """Answers with one number for each pair of tokens: its rows cannot be cut on one axis."""
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=models.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=models.FLOAT),
        helper.make_node("Unsqueeze", ["ids", "last"], ["columns"]),
        helper.make_node("Unsqueeze", ["mask", "middle"], ["rows"]),
        helper.make_node("MatMul", ["columns", "rows"], ["pairs"]),
    ]
    axes = {"last": np.array([2]), "middle": np.array([1])}
    inputs = [value(name, ["batch", "n"], INT64) for name in NAMES]
    return save(path, nodes, inputs, [value("pairs", ["batch", "n", "n"])], axes)


def unmasked_maximum(path: Path) -> Path:
    """Padding changes nothing if the row has the same token already."""
    nodes = [
        helper.make_node("Mul", ["attention_mask", "zero"], ["no_mask"]),
        helper.make_node("Sub", ["no_mask", "input_ids"], ["negative"]),
        helper.make_node("ReduceMax", ["negative", "last"], ["largest"], keepdims=0),
    ]
    numbers = {"zero": np.array(0), "last": np.array([1])}
    inputs = [value(name, ["batch", "n"], INT64) for name in NAMES]
    return save(path, nodes, inputs, [value("largest", ["batch"], INT64)], numbers)


def counted_length(path: Path) -> Path:
    """Answers with the length of its rows, masked or not."""
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["kept"]),
        helper.make_node("Mul", ["kept", "zero"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["ones"]),
        helper.make_node("ReduceSum", ["ones", "last"], ["length"], keepdims=0),
    ]
    numbers = {"zero": np.array(0), "one": np.array(1), "last": np.array([1])}
    inputs = [value(name, ["batch", "n"], INT64) for name in NAMES]
    return save(path, nodes, inputs, [value("length", ["batch"], INT64)], numbers)


def test_an_encoder_takes_rows_of_different_lengths_and_fills_what_is_left_out(
    tmp_path: Path,
) -> None:
    found = described(models.encoder_model(tmp_path / "model.onnx"))
    assert ragged_axes(found) == dict.fromkeys((*NAMES, "token_type_ids", "last_hidden_state"), 1)
    assert [spec.default for spec in found.inputs] == [None, "ones", "zeros"]
    assert {spec.fill for spec in found.inputs} == {0}
    assert {spec.shape[1] for spec in (*found.inputs, *found.outputs)} == {"sequence"}


def test_an_output_without_tokens_is_not_cut(tmp_path: Path) -> None:
    found = described(models.pooling_model(tmp_path / "model.onnx"))
    assert ragged_axes(found) == dict.fromkeys((*NAMES, "tokens"), 1)


@pytest.mark.parametrize(
    "build",
    [
        partial(models.pooling_model, masked=False),
        renamed,
        with_lengths_of_their_own,
        attention_map,
        counted_length,
        unmasked_maximum,
        models.linear_model,
    ],
    ids=["ignores mask", "other names", "two lengths", "pairs", "counts", "maximum", "no text"],
)
def test_where_padding_may_show_lengths_stay_apart(tmp_path: Path, build: Build) -> None:
    found = described(build(tmp_path / "model.onnx"))
    assert ragged_axes(found) == {}
    assert {spec.default for spec in found.inputs} == {None}
    assert None not in [spec.batch_axis for spec in found.outputs]
