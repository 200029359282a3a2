"""From a request's tensors to a model's inputs, for dialects that say what datatype each has."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.bounds import check_bounds
from snoozeml.wire.conversion import convert_array
from snoozeml.wire.json_data import DataReader
from snoozeml.wire.json_values import Lossy, quoted, shown
from snoozeml.wire.names import NameRules
from snoozeml.wire.open import open_spec
from snoozeml.wire.raw import to_texts
from snoozeml.wire.shapes import Shape, ShapeRules
from snoozeml.wire.tensors import DTYPES, Array, Inference, Tensors


class Given(msgspec.Struct, gc=False):
    """One tensor as a request gives it.

    Attributes:
        read: makes the flat array of its values, in its own datatype.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    read: Callable[[], Array]


class Assembly:
    """The rules of one model, applied to requests."""

    def __init__(self, signature: Signature) -> None:
        self._is_open: Final = signature.open_inputs
        self._wants_text: Final = not signature.takes_any_bytes and (
            signature.open_inputs or any(spec.datatype == "BYTES" for spec in signature.inputs)
        )
        self._names: Final = NameRules(signature)
        self._shapes: Final = ShapeRules(signature.inputs)
        self._specs: Final = {spec.name: spec for spec in signature.inputs}
        self._readers: Final = {spec.name: DataReader(spec) for spec in signature.inputs}

    def inference(
        self, tensors: Sequence[Given], outputs: Sequence[str] | None, reply_as: object
    ) -> Inference:
        """Check a request and convert its tensors; nothing is read before names and shapes fit.

        Args:
            outputs: those asked for; None: all that the inputs allow.
            reply_as: see `Inference`.

        Raises:
            InvalidInput: names, datatypes or values do not fit the model.
            ShapeMismatch: shapes do not.
        """
        if self._names.only_input is not None:
            for tensor in tensors:
                tensor.name = self._names.only_input
        left_out = self._names.check_inputs([tensor.name for tensor in tensors])
        shapes = {tensor.name: _checked(tensor) for tensor in tensors}
        names = self._names.outputs(outputs, shapes)
        if self._is_open:
            inputs = _read_open(tensors, shapes)
        else:
            defaults = self._shapes.check(shapes, left_out)
            inputs = {tensor.name: self._array(tensor) for tensor in tensors}
            for name, shape in defaults.items():
                inputs[name] = self._readers[name].default(shape)
        if self._wants_text:
            inputs = {name: _without_bytes(name, array) for name, array in inputs.items()}
        return Inference(inputs, names, reply_as)

    def _array(self, tensor: Given) -> Array:
        spec = self._specs[tensor.name]
        if tensor.datatype != spec.datatype:
            self._readers[tensor.name].check_datatype(tensor.datatype)
        return fitted(tensor, spec)


def fitted(tensor: Given, spec: TensorSpec) -> Array:
    """Read a tensor into an input's own datatype.

    Raises:
        InvalidInput: that would lose something, or the model does not take such values.
    """
    array = _read(tensor, spec.datatype)
    check_bounds(spec, array)
    return array


def _read(tensor: Given, datatype: str) -> Array:
    try:
        array = convert_array(tensor.read(), DTYPES[datatype])
    except Lossy as loss:
        raise InvalidInput(
            f"input {quoted(tensor.name)} wants {datatype}, got {tensor.datatype}"
            f" {shown(loss.value)}: {loss.why}"
        ) from None
    try:
        return array.reshape(tensor.shape)
    except (ValueError, OverflowError):  # more dimensions, or larger ones, than numpy can count
        raise ShapeMismatch(
            f"input {quoted(tensor.name)}: no array has the shape {list(tensor.shape[:64])}"
        ) from None


def _without_bytes(name: str, array: Array) -> Array:
    return to_texts(name, array) if array.dtype.hasobject else array


def _read_open(tensors: Sequence[Given], shapes: Mapping[str, Shape]) -> Tensors:
    """Read the inputs of a model that takes what it is given."""
    specs = [open_spec(tensor.name, tensor.datatype, tensor.shape, None) for tensor in tensors]
    ShapeRules(specs).check(shapes)
    pairs = zip(tensors, specs, strict=True)
    return {tensor.name: _read(tensor, spec.datatype) for tensor, spec in pairs}


def _checked(tensor: Given) -> Shape:
    if tensor.shape and min(tensor.shape) < 0:
        raise ShapeMismatch(
            f"input {quoted(tensor.name)}: a dimension is never negative,"
            f" got {list(tensor.shape[:64])}"
        )
    return tensor.shape
