"""What a model takes and gives, as the engine reports it."""

from collections.abc import Collection
from typing import Any, Final

from snoozeml.core.tensors import Datatype, Dim, Signature, TensorSpec
from snoozeml.errors import ModelFailed
from snoozeml.prepare.session import Session

_DATATYPES: Final[dict[str, Datatype]] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float": "FP32",
    "double": "FP64",
    "bfloat16": "BF16",
    "string": "BYTES",
}


def read_signature(session: Session, unranked_inputs: Collection[str] = ()) -> Signature:
    """Inputs and outputs of an open model; the batch axes are not known yet.

    The engine reports a tensor of unknown rank as if it were a scalar. For inputs that is an error;
    the true rank of outputs can only be seen in an answer.

    Args:
        unranked_inputs: names of inputs that do not say how many axes they have.

    Raises:
        ModelFailed: an input or output that no request could carry; says what to change.
    """
    try:
        inputs = tuple(_tensor_spec("input", node) for node in session.get_inputs())
        outputs = tuple(_tensor_spec("output", node) for node in session.get_outputs())
    except UnicodeDecodeError:
        raise ModelFailed("an input or output has a name or dimension that is not UTF-8") from None
    for spec in inputs:
        if spec.name in unranked_inputs:
            raise ModelFailed(
                f"input {spec.name!r} does not say how many dimensions it has, so requests cannot"
                " be checked; export the model with a shape for it (dimensions may be dynamic)"
            )
    return Signature(inputs, outputs)


def _tensor_spec(role: str, node: Any) -> TensorSpec:
    element = node.type.removeprefix("tensor(").removesuffix(")")
    if node.type != f"tensor({element})":
        raise ModelFailed(
            f"{role} {node.name!r} is a {node.type}, and only plain tensors can be served; export"
            " the model without it (for scikit-learn: convert with options={'zipmap': False})"
        )
    if element not in _DATATYPES:
        raise ModelFailed(
            f"{role} {node.name!r} has the datatype {element}, which is not supported"
        )
    return TensorSpec(node.name, _DATATYPES[element], tuple(_dim(size) for size in node.shape))


def _dim(size: int | str | None) -> Dim:
    return size if isinstance(size, int) else size or None
