"""What a plan tells about its packed weights."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import models
from snoozeml.prepare.packing import PackedWeights, packed_weights
from snoozeml.prepare.session import GRAPH_FILE, WEIGHTS_FILE, optimise

MIB = 2**20


@pytest.mark.parametrize(
    ("offsets", "sizes", "are_useful"),
    [
        ((), (), False),
        ((64,), (MIB - 1,), False),
        ((64,), (MIB,), True),
        ((0, MIB), (MIB // 2, MIB // 2), True),
        ((64, 2 * MIB + 32), (MIB, 3 * MIB), False),
    ],
)
def test_packed_weights_are_useful_if_they_are_large_and_all_of_them_aligned(
    offsets: tuple[int, ...], sizes: tuple[int, ...], are_useful: bool
) -> None:
    packed = PackedWeights(offsets, sizes)
    assert packed.are_useful is are_useful
    assert packed.packing_bytes == max(sizes, default=0), "one is packed after the other"


def test_a_tensor_may_have_several_copies(tmp_path: Path) -> None:
    tensor = helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [0.0])
    for key, value in (
        ("location", "weights"),
        ("prepacked_0", "MatMul+1|64;10;0|128;20;0"),
        ("prepacked_1", "Gemm+2|192;30;0"),
    ):
        tensor.external_data.add(key=key, value=value)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], [tensor])), tmp_path / "g.onnx")
    assert packed_weights(tmp_path / "g.onnx") == PackedWeights((64, 128, 192), (10, 20, 30))


def test_an_odd_number_of_bytes_before_them_leaves_packed_weights_aligned(tmp_path: Path) -> None:
    """Else they must not be used; the first release that wrote them was careless about that."""
    features = 333
    rng = np.random.default_rng(0)
    weights = {
        f"{name}{layer}": rng.standard_normal(shape, dtype=np.float32)
        for layer in range(4)
        for name, shape in (("matrix", (features, features)), ("bias", (features,)))
    }
    nodes = [
        helper.make_node("Gemm", [f"x{n}", f"matrix{n}", f"bias{n}"], [f"x{n + 1}"])
        for n in range(4)
    ]
    inputs, outputs = [[models.value(x, ["batch", features])] for x in ("x0", "x4")]
    model = models.save(tmp_path / "model.onnx", nodes, inputs, outputs, weights)
    optimise(model, tmp_path, model.stat().st_size)
    packed = packed_weights(tmp_path / GRAPH_FILE)
    assert len(packed.sizes) == 4
    assert packed.are_useful
    assert (tmp_path / WEIGHTS_FILE).stat().st_size > packed.total_bytes + 4 * features**2 * 4
