"""ONNX nodes and constants in the making, in the arithmetic of a library."""

from typing import Any, Final

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper


class Arithmetic:
    """Appends nodes one by one; each has one output, whose name is made up unless it is given.

    Args:
        dtype: what the library calculates in, float32 or float64.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype: Final = dtype
        self.datatype: Final = helper.np_dtype_to_tensor_dtype(dtype)
        self.nodes: Final[list[NodeProto]] = []
        self.constants: Final[list[TensorProto]] = []

    def add(
        self, op: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any
    ) -> str:
        name = output or f"{op.lower()}_{len(self.nodes)}"
        node = helper.make_node(op, inputs, [name], name=name, domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, self.dtype))

    def axis(self, axis: int) -> str:
        return self.constant(np.array([axis]))

    def cast(self, values: str, datatype: int) -> str:
        return self.add("Cast", values, to=datatype)

    def of_own_type(self, values: str) -> str:
        return self.cast(values, self.datatype)

    def wide(self, values: str) -> str:
        is_wide = self.dtype == np.float64
        return values if is_wide else self.cast(values, TensorProto.DOUBLE)

    def narrow(self, values: str) -> str:
        return values if self.dtype == np.float64 else self.of_own_type(values)

    def exp(self, values: str) -> str:
        """e^x, rounded once; the engine's own single precision is an approximation."""
        return self.narrow(self.add("Exp", self.wide(values)))
