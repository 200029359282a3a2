"""An ONNX graph under construction: a value is a name, and each call adds an operator."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike
from onnx import ModelProto, TensorProto, helper, numpy_helper

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.checkpoint import StoredTensor
from snoozeml.prepare.session import GRAPH_FILE, SMALLEST_OUTSIDE_BYTES, WEIGHTS_FILE
from snoozeml.wire.tensors import Array

Value = str
"""The name of a tensor in the graph."""

_OPSET: Final = 20
_IR_VERSION: Final = 10
_CONTRIB: Final = "com.microsoft"
_CONTRIB_OPS: Final = frozenset(
    {
        "BiasGelu",
        "FastGelu",
        "MultiHeadAttention",
        "QuickGelu",
        "RotaryEmbedding",
        "SkipLayerNormalization",
    }
)
"""Fused operators of ONNX Runtime, described in its docs/ContribOperators.md."""

_ELEMENTS: Final = {
    "BOOL": TensorProto.BOOL,
    "FP32": TensorProto.FLOAT,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
}

_NONE: Final[Mapping[str, int]] = MappingProxyType({})
_ALIGNMENT_BYTES: Final = 64


class Graph:
    """Collects operators, inputs and outputs; weights stay where they are until `write`.

    Args:
        tensors: the checkpoint's, by name.
    """

    def __init__(self, tensors: dict[str, StoredTensor]) -> None:
        self._tensors: Final = tensors
        self._nodes: Final[list[Any]] = []
        self._weights: Final[dict[Value, StoredTensor]] = {}
        self._constants: Final[dict[bytes, TensorProto]] = {}
        self._inputs: Final[list[TensorSpec]] = []
        self._usual: Final[dict[str, int]] = {}
        self._outputs: Final[list[TensorSpec]] = []

    @property
    def signature(self) -> Signature:
        return Signature(tuple(self._inputs), tuple(self._outputs))

    @property
    def weights_bytes(self) -> int:
        """What the weights take in float32."""
        return sum(4 * int(np.prod(tensor.shape)) for tensor in self._weights.values())

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """The checkpoint's, by name."""
        return self._tensors

    @property
    def usual_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs as they usually are: with numbers for symbols that have a usual size."""
        return tuple(
            replace(spec, shape=tuple(self._usual.get(str(dim), dim) for dim in spec.shape))
            for spec in self._inputs
        )

    def input(self, spec: TensorSpec, usual: Mapping[str, int] = _NONE) -> Value:
        """Declare an input. Args: usual: sizes of its symbols, for trials."""
        self._usual.update(usual)
        self._inputs.append(spec)
        return spec.name

    def output(self, spec: TensorSpec, value: Value) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [spec.name]))
        self._outputs.append(spec)

    def op(self, kind: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Add an operator with one output; None leaves an optional input out."""
        return self.ops(kind, inputs, 1, **attributes)[0]

    def ops(
        self, kind: str, inputs: tuple[Value | None, ...], outputs: int, **attributes: Any
    ) -> list[Value]:
        """Add an operator with several outputs."""
        # Double underscores keep these names apart from those of inputs and outputs.
        names = [f"{kind}__{len(self._nodes)}_{index}" for index in range(outputs)]
        domain = _CONTRIB if kind in _CONTRIB_OPS else ""
        given = ["" if name is None else name for name in inputs]
        node = helper.make_node(kind, given, names, domain=domain, **attributes)
        # The engine's errors name the node: say which weights do not fit.
        node.name = " ".join([names[0], *(name for name in given if name in self._weights)])
        self._nodes.append(node)
        return names

    def stored(self, name: str) -> StoredTensor:
        """Raises ModelFailed: the checkpoint has no tensor of this name."""
        if name not in self._tensors:
            raise ModelFailed(f"the checkpoint lacks the tensor {name!r}")
        return self._tensors[name]

    def weight(self, name: str) -> Value:
        """A tensor of the checkpoint, in float32. Raises ModelFailed like `stored`."""
        self._weights[name] = self.stored(name)
        return name

    def constant(self, array: ArrayLike, dtype: Any = np.float32) -> Value:
        """A small tensor inside the graph; equal ones are one."""
        values: Array = np.asarray(array, dtype, order="C")
        key = repr((values.dtype.str, values.shape)).encode() + values.tobytes()
        if key not in self._constants:
            tensor = numpy_helper.from_array(values, f"constant__{len(self._constants)}")
            self._constants[key] = tensor
        return self._constants[key].name

    def ints(self, *values: int) -> Value:
        """A constant list of whole numbers: axes, sizes, indices."""
        return self.constant(values, np.int64)

    def write(self, draft: Path) -> Path | None:
        """Write the graph.

        Weights in float32 are mapped where they lie. If there are others, all are written beside
        the graph in float32.

        Returns:
            The folder that the graph's weights are relative to; None: the graph's own.
        """
        folder = None
        if all(_can_be_mapped(tensor) for tensor in self._weights.values()):
            folder = _common_folder(tensor.file for tensor in self._weights.values())
            initializers = [_refer(*item, folder) for item in self._weights.items()]
        else:
            initializers = _copy(self._weights, draft / WEIGHTS_FILE)
        model = self._model([*self._constants.values(), *initializers])
        (draft / GRAPH_FILE).write_bytes(model.SerializeToString())
        return folder

    def _model(self, initializers: list[TensorProto]) -> ModelProto:
        graph = helper.make_graph(
            self._nodes,
            "plan",
            [_value_info(spec) for spec in self._inputs],
            [_value_info(spec) for spec in self._outputs],
            initializers,
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


class Weights:
    """A checkpoint's tensors below a common prefix, as they are used in a graph."""

    def __init__(self, graph: Graph, prefix: str = "") -> None:
        self._graph: Final = graph
        self._prefix: Final = prefix

    def at(self, name: str) -> "Weights":
        """Those below `name` here."""
        return Weights(self._graph, f"{self._prefix}{name}.")

    def first_of(self, *names: str) -> "Weights":
        """Those below the first name that has any; the same model is saved under several."""
        tensors = self._graph.tensors
        for name in names:
            below = f"{self._prefix}{name}." if name else self._prefix
            if any(tensor.startswith(below) for tensor in tensors):
                return Weights(self._graph, below)
        wanted = " or ".join(f"{self._prefix}{name}" for name in names)
        raise ModelFailed(f"the checkpoint has no tensors below {wanted}")

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._graph.tensors

    def __getitem__(self, name: str) -> Value:
        return self._graph.weight(self._prefix + name)

    def maybe(self, name: str) -> Value | None:
        """A tensor that some checkpoints lack."""
        return self[name] if self._prefix + name in self._graph.tensors else None

    def has_any(self, name: str) -> bool:
        """Whether there is any tensor below `name`."""
        return any(tensor.startswith(f"{self._prefix}{name}.") for tensor in self._graph.tensors)

    def of_shape(self, name: str, *sizes: int | None) -> Value:
        """A tensor that must have these sizes; None: any.

        Raises:
            ModelFailed: it is missing, or has others.
        """
        shape = self.shape(name)
        wanted = tuple(
            has if size is None else size for has, size in zip(shape, sizes, strict=False)
        )
        if len(shape) != len(sizes) or shape != wanted:
            sizes_text = ", ".join("any" if size is None else str(size) for size in sizes)
            raise ModelFailed(
                f"the tensor {self._prefix + name!r} has the shape {list(shape)}, and the"
                f" architecture needs [{sizes_text}]"
            )
        return self[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._graph.stored(self._prefix + name).shape

    def read(self, name: str) -> Array:
        """A tensor's numbers, to make a constant of them; for small ones."""
        return self._graph.stored(self._prefix + name).read()


def _can_be_mapped(tensor: StoredTensor) -> bool:
    return tensor.dtype == "F32" and tensor.offset % 4 == 0


def _common_folder(files: Iterable[Path]) -> Path:
    """The one below which all files lie."""
    return Path(os.path.commonpath({file.parent for file in files}))


def _refer(name: str, stored: StoredTensor, folder: Path) -> TensorProto:
    if stored.length_bytes < SMALLEST_OUTSIDE_BYTES:
        return numpy_helper.from_array(stored.read(), name)
    location = stored.file.relative_to(folder).as_posix()
    return _external(name, stored, location, stored.offset)


def _copy(weights: dict[Value, StoredTensor], file: Path) -> list[TensorProto]:
    copied = []
    with file.open("wb") as out:
        for name, stored in weights.items():
            out.write(bytes(-out.tell() % _ALIGNMENT_BYTES))
            copied.append(_external(name, stored, file.name, out.tell()))
            out.write(stored.read().tobytes())
    return copied


def _external(name: str, stored: StoredTensor, location: str, offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=stored.shape)
    tensor.data_location = TensorProto.EXTERNAL
    length = 4 * int(np.prod(stored.shape))
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _value_info(spec: TensorSpec) -> Any:
    return helper.make_tensor_value_info(spec.name, _ELEMENTS[spec.datatype], spec.shape)
