"""Replacing linear layers of a graph with integer arithmetic."""

from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from snoozeml.prepare.int8.linears import Linear
from snoozeml.prepare.int8.steps import TINY, Step, quantise_matrix
from snoozeml.wire.tensors import Array

_CONTRIB: Final = "com.microsoft"
_AXES_ARE_AN_INPUT_SINCE: Final = 18  # opset, for ReduceMax


class Rewriter:
    """Builds the integer version of a model.

    Args:
        steps: by name of the input.
        matrices: of the layers to replace, by name; (out, in).
    """

    def __init__(
        self, model: ModelProto, steps: dict[str, Step], matrices: dict[str, Array]
    ) -> None:
        self._model: Final = model
        self._steps: Final = steps
        self._matrices: Final = matrices
        self._nodes: Final[list[NodeProto]] = []
        self._tensors: Final[dict[str, Array]] = {}
        self._quantised: Final[dict[str, tuple[str, str]]] = {}
        self._opset: Final = next(o.version for o in model.opset_import if o.domain == "")

    def rewrite(self, linears: list[Linear]) -> ModelProto:
        """A copy of the model with these layers in integers."""
        by_output = {linear.node.output[0]: linear for linear in linears}
        for node in self._model.graph.node:
            linear = by_output.get(node.output[0])
            if linear is None:
                self._nodes.append(node)
            else:
                self._replace(linear)
        return self._rewritten({linear.weight for linear in linears})

    def _replace(self, linear: Linear) -> None:
        step, out = self._steps[linear.x], linear.node.output[0]
        q, scale = self._integers(linear.x, step)
        matrix, sizes, constant = self._matrix(linear, step)
        zero = self._constant(np.uint8(step.zero))
        product = self._add(
            "MatMulIntegerToFloat", q, matrix, self._constant(np.float32(1)), sizes, zero
        )
        scaled = self._add("Mul", product, scale)
        biases = [name for name in (linear.bias, constant) if name is not None]
        for name in biases:
            scaled = self._add("Add", scaled, name)
        self._nodes.append(helper.make_node("Identity", [scaled], [out]))

    def _integers(self, x: str, step: Step) -> tuple[str, str]:
        """The input in integers, and the scale of each row; once for all layers that use it."""
        if x not in self._quantised:
            moved = self._add("Add", x, self._constant(np.float32(step.shift))) if step.shift else x
            even = self._add("Mul", moved, self._constant(step.factor))
            size = even if step.zero == 0 else self._add("Abs", even)
            largest = self._add("Max", self._row_maximum(size), self._constant(np.float32(TINY)))
            scale = self._add("Div", largest, self._constant(np.float32(255 - step.zero)))
            scaled = self._add("Div", even, scale)
            one, zero = self._constant(np.float32(1)), self._constant(np.uint8(step.zero))
            self._quantised[x] = self._add("QuantizeLinear", scaled, one, zero), scale
        return self._quantised[x]

    def _row_maximum(self, x: str) -> str:
        if self._opset < _AXES_ARE_AN_INPUT_SINCE:
            return self._add("ReduceMax", x, axes=[-1], keepdims=1)
        return self._add("ReduceMax", x, self._constant(np.array([-1], np.int64)), keepdims=1)

    def _matrix(self, linear: Linear, step: Step) -> tuple[str, str, str | None]:
        """Names of the matrix in integers, its scales, and what takes the shift back, if any."""
        matrix = self._matrices[linear.weight]
        integers, scales = quantise_matrix(matrix, step)
        names = f"{linear.weight}__int8", f"{linear.weight}__scales", f"{linear.weight}__shift"
        self._tensors[names[0]] = np.ascontiguousarray(integers.T)
        self._tensors[names[1]] = scales
        if not step.shift:
            return names[0], names[1], None
        self._tensors[names[2]] = (-step.shift * matrix.sum(1)).astype(np.float32)
        return names

    def _add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"int8__{len(self._nodes)}_{kind}"
        domain = _CONTRIB if kind == "MatMulIntegerToFloat" else ""
        self._nodes.append(helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def _constant(self, value: Any) -> str:
        array = np.asarray(value)
        key = f"int8__{array.dtype}_{array.shape}_{hash(array.tobytes())}"
        self._tensors[key] = array
        return key

    def _rewritten(self, unused: set[str]) -> ModelProto:
        model = self._model
        still_used = {name for node in self._nodes for name in node.input}
        kept = [t for t in model.graph.initializer if t.name in still_used or t.name not in unused]
        graph = helper.make_graph(
            self._nodes,
            model.graph.name,
            model.graph.input,
            model.graph.output,
            [*kept, *(numpy_helper.from_array(a, name) for name, a in self._tensors.items())],
        )
        opsets = [opset for opset in model.opset_import if opset.domain != _CONTRIB]
        opsets.append(helper.make_opsetid(_CONTRIB, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)
