"""Linear layers in 8-bit integers."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from snoozeml.errors import ModelFailed
from snoozeml.prepare.int8 import quantising
from snoozeml.prepare.int8.linears import find_linears
from snoozeml.prepare.int8.quantising import quantise
from snoozeml.prepare.session import open_model
from snoozeml.wire.tensors import Tensors

COLUMNS = 32


def perceptron(opset: int = 20, *, outlier: float = 1.0) -> ModelProto:
    """Two layers, one as Gemm and one as MatMul, with a ReLU in between."""
    random = np.random.default_rng(0)
    first = random.normal(size=(48, COLUMNS)).astype(np.float32)
    first[:, 3] *= outlier
    tensors = {
        "first": first,
        "bias": random.normal(size=48).astype(np.float32),
        "second": random.normal(size=(48, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "first", "bias"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["positive"]),
        helper.make_node("MatMul", ["positive", "second"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def requests(seed: int = 0) -> list[Tensors]:
    random = np.random.default_rng(seed)
    return [{"x": random.normal(size=(16, COLUMNS)).astype(np.float32)}]


def error(one: ModelProto, other: ModelProto) -> float:
    """On requests that were not used to quantise, relative to the size of the answer."""
    request = requests(seed=1)[0]
    wanted, got = (open_model(model).run(None, request)[0] for model in (one, other))
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_both_layers_become_integers_and_answer_nearly_alike(opset: int) -> None:
    model = perceptron(opset)
    quantised = quantise(model, requests())
    kinds = [node.op_type for node in quantised.model.graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 2
    assert find_linears(quantised.model) == []
    assert error(model, quantised.model) < 0.02


def test_a_column_of_large_values_does_not_spoil_the_others() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(16, COLUMNS)).astype(np.float32)
    rows[:, 3] *= 100
    model = perceptron(outlier=0.01)
    quantised = quantise(model, [{"x": rows}])
    wanted, got = (open_model(m).run(None, {"x": rows})[0] for m in (model, quantised.model))
    assert float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted)) < 0.02


def test_layers_that_hurt_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    cosines = iter([0.5, 1.0])
    monkeypatch.setattr(quantising, "_lowest_cosine", lambda *_: next(cosines))
    quantised = quantise(perceptron(), requests())
    assert len(quantised.kept) == 1
    assert len(find_linears(quantised.model)) == 1


def test_a_model_that_loses_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantising, "LEAST_COSINE", 1.1)
    with pytest.raises(ModelFailed, match="loses too much"):
        quantise(perceptron(), requests())
