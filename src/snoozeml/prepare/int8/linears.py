"""The linear layers of a graph: products with a constant matrix."""

from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from snoozeml.wire.tensors import Array


class Linear(NamedTuple):
    """A node that multiplies rows with a matrix.

    Attributes:
        x: name of what is multiplied, of shape (…, in).
        weight: name of the matrix.
        transposed: the matrix is (out, in), not (in, out).
    """

    node: NodeProto
    x: str
    weight: str
    bias: str | None
    transposed: bool


def find_linears(model: ModelProto) -> list[Linear]:
    """All of them whose matrix is in float32."""
    matrices = {
        tensor.name
        for tensor in model.graph.initializer
        if len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT
    }
    return [
        Linear(
            node,
            node.input[0],
            node.input[1],
            node.input[2] if len(node.input) > 2 and node.input[2] else None,
            bool(_attribute(node, "transB", 0)),
        )
        for node in model.graph.node
        if _is_linear(node) and node.input[1] in matrices
    ]


def matrices_of(model: ModelProto, linears: list[Linear]) -> dict[str, Array]:
    """The matrices by name. Shapes: (out, in)"""
    transposed = {linear.weight: linear.transposed for linear in linears}
    found = {}
    for tensor in model.graph.initializer:
        if tensor.name in transposed:
            matrix = numpy_helper.to_array(tensor)
            found[tensor.name] = matrix if transposed[tensor.name] else matrix.T
    return found


def _is_linear(node: NodeProto) -> bool:
    if node.op_type == "MatMul" and node.domain == "":
        return True
    plain = (
        ("alpha", 1.0),
        ("beta", 1.0),
        ("transA", 0),
    )
    return node.op_type == "Gemm" and all(
        np.isclose(_attribute(node, name, value), value) for name, value in plain
    )


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default
