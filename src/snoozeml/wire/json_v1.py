"""The JSON dialect of `/v1/models/{id}/infer`: bodies to arrays, arrays to bodies."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
import orjson

from snoozeml.core.tensors import Datatype, Signature
from snoozeml.wire.assembly import Given, fitted
from snoozeml.wire.dialect import Dialect
from snoozeml.wire.json_bodies import BodyParser, data_members
from snoozeml.wire.json_data import DataReader
from snoozeml.wire.names import NameRules
from snoozeml.wire.open import open_spec, read_open, read_stated
from snoozeml.wire.shapes import ShapeRules
from snoozeml.wire.tensors import DATATYPES, Array, Inference, Tensors

_Data = TypeVar("_Data")
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class _Tensor(msgspec.Struct, Generic[_Data]):
    name: str
    shape: list[_Size]
    data: _Data
    datatype: str | None = None


class _Body(msgspec.Struct, Generic[_Data]):
    """A request; of `timeout_ms`, which the daemon heeds, only the form is checked here."""

    inputs: list[_Tensor[_Data]]
    outputs: list[str] | None = None
    parameters: dict[str, Any] | None = None
    timeout_ms: _Milliseconds | None = None


_parse: Final = BodyParser[_Body[Any]](
    _Body[msgspec.Raw],
    _Body[Any],
    '{"inputs": [{"name", "shape", "data", "datatype"?}], "outputs"?: [names],'
    ' "parameters"?: {}, "timeout_ms"?: whole number above 0}',
).parse


class JsonV1(Dialect):
    """Decodes requests to one model and encodes its answers."""

    def __init__(self, model_id: str, signature: Signature) -> None:
        self._model_id: Final = model_id
        self._is_open: Final = signature.open_inputs
        self._names: Final = NameRules(signature)
        self._shapes: Final = ShapeRules(signature.inputs)
        self._specs: Final = {spec.name: spec for spec in signature.inputs}
        self._readers: Final = {spec.name: DataReader(spec) for spec in signature.inputs}
        self._datatypes: Final[dict[str, Datatype]] = {
            spec.name: spec.datatype for spec in signature.outputs
        }

    def decode(self, body: bytes) -> Inference:
        """Read a request; every input of the answer fits the signature, defaults included.

        Raises:
            InvalidInput: it is not JSON, not a request, or names or values do not fit the model.
            ShapeMismatch: shapes do not fit the model, the data or each other.
        """
        request = _parse(body)
        if self._names.only_input is not None:
            for tensor in request.inputs:
                tensor.name = self._names.only_input
        shapes = {tensor.name: tensor.shape for tensor in request.inputs}
        left_out = self._names.check_inputs([tensor.name for tensor in request.inputs])
        outputs = self._names.outputs(request.outputs, shapes)
        if self._is_open:
            return Inference(_read_open(request.inputs), outputs)
        defaults = self._shapes.check(shapes, left_out)
        inputs = {tensor.name: self._array(tensor) for tensor in request.inputs}
        for name, shape in defaults.items():
            inputs[name] = self._readers[name].default(shape)
        return Inference(inputs, outputs)

    def encode(
        self, names: Sequence[str], outputs: Sequence[Array], _reply_as: None, duration_s: float
    ) -> bytes:
        """Write an answer; floats that are not finite become null."""
        tensors = []
        for name, array in zip(names, outputs, strict=True):
            tensor = {
                "name": name,
                "shape": array.shape,
                "datatype": self._datatypes.get(name) or DATATYPES[array.dtype],
            }
            tensors.append(tensor | data_members(array))
        return orjson.dumps(
            {
                "model_id": self._model_id,
                "outputs": tensors,
                "duration_ms": duration_s * 1000,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    def _array(self, tensor: _Tensor[Any]) -> Array:
        spec, reader = self._specs[tensor.name], self._readers[tensor.name]
        datatype = tensor.datatype
        if datatype is None or datatype == spec.datatype:
            return reader.read(tensor.data, tensor.shape)
        reader.check_datatype(datatype)
        read = partial(read_stated, tensor.name, datatype, tensor.shape, tensor.data)
        return fitted(Given(tensor.name, datatype, tensor.shape, read), spec)


def _read_open(tensors: Sequence[_Tensor[Any]]) -> Tensors:
    specs = [open_spec(t.name, t.datatype, t.shape, t.data) for t in tensors]
    ShapeRules(specs).check({tensor.name: tensor.shape for tensor in tensors})
    return {
        spec.name: read_open(spec, tensor.data, tensor.shape, tensor.datatype)
        for spec, tensor in zip(specs, tensors, strict=True)
    }
