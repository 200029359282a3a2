"""Inputs that are indices into a table of the model, and so have bounds."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace
from onnx import ModelProto, NodeProto, TensorProto

from snoozeml.core.tensors import Signature, TensorSpec

_TOKENS: Final = frozenset({"input_ids", "decoder_input_ids", "token_type_ids", "position_ids"})
"""What exporters call inputs that count from 0. Others may mean the last row by -1."""

_KEEPS_VALUES: Final = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})
_INDEX_TYPES: Final = (TensorProto.INT32, TensorProto.INT64)


def table_sizes(model: ModelProto) -> dict[str, int]:
    """By graph input: rows of the smallest table that all its values are looked up in.

    Only what is certain counts: a table that is a constant, and values that reach it as they come.
    """
    rows = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    given = {value.name: value.name for value in model.graph.input}
    sizes: dict[str, int] = {}
    for node in model.graph.node:  # what makes a value stands before what uses it
        match list(node.input):  # nobody has checked yet how many there are
            case [value, *_] if value in given and _keeps_values(node):
                given.update(dict.fromkeys(node.output, given[value]))
            case [table, index] if table in rows and index in given and _looks_up_rows(node):
                name, size = given[index], rows[table]
                sizes[name] = min(size, sizes.get(name, size))
    return sizes


def with_bounds(signature: Signature, sizes: Mapping[str, int]) -> Signature:
    """Complete the inputs of a signature with the bounds that `table_sizes` has found."""
    inputs = (_bounded(s, sizes[s.name]) if s.name in sizes else s for s in signature.inputs)
    return replace(signature, inputs=tuple(inputs))


def _bounded(spec: TensorSpec, size: int) -> TensorSpec:
    if "INT" not in spec.datatype:  # a fraction is cut off, so other values are good, too
        return spec
    counts_from_0 = spec.name in _TOKENS or spec.datatype.startswith("U")
    return replace(spec, bounds=(0 if counts_from_0 else -size, size))


def _keeps_values(node: NodeProto) -> bool:
    if node.domain:
        return False
    return node.op_type in _KEEPS_VALUES or (
        node.op_type == "Cast" and _attribute(node, "to") in _INDEX_TYPES
    )


def _looks_up_rows(node: NodeProto) -> bool:
    return not node.domain and node.op_type == "Gather" and not _attribute(node, "axis")


def _attribute(node: NodeProto, name: str) -> int:
    """A number, or 0."""
    return next((int(found.i) for found in node.attribute if found.name == name), 0)
