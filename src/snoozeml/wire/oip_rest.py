"""The dialect of `/v2/models/{name}/infer`: JSON, and binary tensors that follow it.

Sources: the Open Inference Protocol's REST specification, and the binary tensor data extension of
Triton's protocol. See `oip_framing` for how a body comes here.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
import orjson

from snoozeml.core.names import MODEL_VERSION
from snoozeml.core.tensors import DYNAMIC, Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire import oip
from snoozeml.wire.assembly import Assembly, Given
from snoozeml.wire.dialect import Dialect
from snoozeml.wire.json_bodies import BodyParser, data_members
from snoozeml.wire.json_values import quoted, shown, strings
from snoozeml.wire.oip_framing import mark, unmarked
from snoozeml.wire.open import read_stated
from snoozeml.wire.raw import from_raw, to_raw
from snoozeml.wire.tensors import DTYPES, Array, Inference

_Data = TypeVar("_Data")
_Size = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # as over gRPC
_Parameters = dict[str, Any] | None  # null is how some clients write that there are none


class _Input(msgspec.Struct, Generic[_Data]):
    name: str
    shape: list[_Size]
    datatype: str
    data: _Data | msgspec.UnsetType = msgspec.UNSET
    parameters: _Parameters = None


class _Output(msgspec.Struct):
    name: str
    parameters: _Parameters = None


class _Body(msgspec.Struct, Generic[_Data]):
    inputs: list[_Input[_Data]]
    outputs: list[_Output] | None = None
    parameters: _Parameters = None
    id: str | None = None


_parse: Final = BodyParser[_Body[Any]](
    _Body[msgspec.Raw],
    _Body[Any],
    '{"inputs": [{"name", "shape", "datatype", "data" or "parameters": {"binary_data_size"}}],'
    ' "outputs"?: [{"name", "parameters"?}], "parameters"?: {}, "id"?: text}',
).parse


class _Reply(msgspec.Struct, gc=False):
    """How a request wants its answer.

    Attributes:
        binary: the form of outputs that say nothing about it.
        forms: per output that does, whether it shall be binary.
        classes: per output that is to be classified, how many classes.
    """

    id: str | None
    binary: bool
    forms: dict[str, bool]
    classes: dict[str, int]


class OipRest(Dialect):
    """Decodes requests to one model and encodes its answers."""

    def __init__(self, model_id: str, signature: Signature) -> None:
        self._about: Final = {"model_name": model_id, "model_version": MODEL_VERSION}
        self._assembly: Final = Assembly(signature)
        self._inputs: Final = signature.inputs
        self._outputs: Final = oip.Outputs(signature)

    def decode(self, body: bytes) -> Inference:
        """Read a request; every input of the answer fits the signature, defaults included.

        Raises:
            InvalidInput: it is not a request, or names, values or parameters do not fit the model.
            ShapeMismatch: shapes do not fit the model, the data or each other.
        """
        json_bytes, content = unmarked(body)
        if json_bytes == 0:
            reply = _Reply(None, binary=True, forms={}, classes={})
            return self._assembly.inference([_only_tensor(self._inputs, content)], None, reply)
        request = _parse(content[:json_bytes])
        oip.check_parameters(request.parameters or {})
        binary = _Binary(content[len(content) if json_bytes is None else json_bytes :])
        tensors = [_given(tensor, binary) for tensor in request.inputs]
        binary.check_used()
        names = [output.name for output in request.outputs or ()] or None
        return self._assembly.inference(tensors, names, _reply(request))

    def encode(
        self, names: Sequence[str], outputs: Sequence[Array], reply: _Reply, _duration_s: float
    ) -> bytes:
        """Write an answer; in JSON, floats that are not finite become null.

        Raises:
            InvalidInput: text shall be classified, or too much.
        """
        tensors, pieces = [], []
        for name, array in zip(names, outputs, strict=True):
            datatype, values = self._outputs.written(name, array, reply.classes.get(name, 0))
            if reply.forms.get(name, reply.binary):
                pieces.append(to_raw(values))
                data: dict[str, Any] = {"parameters": {"binary_data_size": len(pieces[-1])}}
            else:
                data = data_members(values)
            tensors.append({"name": name, "datatype": datatype, "shape": values.shape} | data)
        about = self._about if reply.id is None else self._about | {"id": reply.id}
        head = orjson.dumps({**about, "outputs": tensors}, option=orjson.OPT_SERIALIZE_NUMPY)
        return b"".join((mark(len(head) if pieces else None), head, *pieces))


class _Binary:
    """What follows the JSON of a request; tensors take their part of it in order."""

    def __init__(self, data: memoryview) -> None:
        self._data: Final = data
        self._at = 0

    def take(self, name: str, size: object) -> memoryview:
        if type(size) is not int or size < 0:
            wrong = f"must be a number of bytes, not {shown(size)}"
            raise InvalidInput(f"input {quoted(name)}: binary_data_size {wrong}")
        left = len(self._data) - self._at
        if size > left:
            raise InvalidInput(
                f"input {quoted(name)}: binary_data_size is {size}, but only {left} bytes are left"
                " after the JSON and the inputs before it; header Inference-Header-Content-Length"
                " must be the length of the JSON"
            )
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def check_used(self) -> None:
        if left := len(self._data) - self._at:
            raise InvalidInput(
                f"{left} bytes follow that no input has: each binary_data_size must be the length"
                " of its input's data"
            )


def _given(tensor: _Input[Any], binary: _Binary) -> Given:
    name, datatype, shape = tensor.name, tensor.datatype, tensor.shape
    parameters: dict[str, Any] = tensor.parameters or {}
    oip.check_tensor_parameters(name, parameters)
    if "binary_data_size" not in parameters:
        if tensor.data is msgspec.UNSET:
            raise InvalidInput(f"input {quoted(name)} has neither data nor binary_data_size")
        read = partial(read_stated, name, datatype, shape, tensor.data)
        return Given(name, datatype, shape, read)
    if tensor.data is not msgspec.UNSET:
        raise InvalidInput(f"input {quoted(name)} has both data and binary_data_size; give one")
    data = binary.take(name, parameters["binary_data_size"])
    return Given(name, datatype, shape, partial(from_raw, name, datatype, shape, data))


def _reply(request: _Body[Any]) -> _Reply:
    reply = _Reply(request.id, _is_set("binary_data_output", request.parameters or {}), {}, {})
    for output in request.outputs or ():
        name, parameters = output.name, output.parameters
        if parameters:
            oip.check_tensor_parameters(name, parameters)
            if "binary_data" in parameters:
                reply.forms[name] = _is_set("binary_data", parameters)
            if count := oip.classes_asked_for(name, parameters):
                reply.classes[name] = count
    return reply


def _is_set(name: str, parameters: dict[str, Any]) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidInput(f"parameter {name} must be true or false, not {shown(value)}")
    return value


def _only_tensor(inputs: Sequence[TensorSpec], data: memoryview) -> Given:
    """A request without JSON: the body is the tensor of the only input that must be given.

    Raises:
        InvalidInput: the model has no such input.
        ShapeMismatch: no shape that it takes holds so many bytes.
    """
    needed = [spec for spec in inputs if spec.default is None]
    if len(needed) != 1:
        wanted = quoted(*(spec.name for spec in needed)) if needed else "what it has not declared"
        raise InvalidInput(
            "Inference-Header-Content-Length: 0 says that the body is one tensor, but the model"
            f" takes {wanted}; send JSON that names the inputs, and its length in the header"
        )
    (spec,) = needed
    if spec.datatype == "BYTES":
        read: Callable[[], Array] = partial(strings, [bytes(data)], DTYPES["BYTES"])
        return Given(spec.name, spec.datatype, [1] * len(spec.shape), read)
    shape = _shape_of(spec, len(data) // DTYPES[spec.datatype].itemsize)
    return Given(
        spec.name, spec.datatype, shape, partial(from_raw, spec.name, spec.datatype, shape, data)
    )


def _shape_of(spec: TensorSpec, count: int) -> list[int]:
    """The shape of a tensor of `count` values; with another free axis, the batch axis is 1."""
    shape = spec.public_shape
    free = [axis for axis, size in enumerate(shape) if size == DYNAMIC and axis != spec.batch_axis]
    if spec.batch_axis is not None:
        shape[spec.batch_axis] = 1 if free else DYNAMIC
        free = free or [spec.batch_axis]
    if len(free) > 1:
        raise ShapeMismatch(
            f"input {spec.name!r} wants {spec.public_shape}, which a body without JSON cannot say"
        )
    for axis in free:
        shape[axis] = count // max(1, math.prod(n for n in shape if n != DYNAMIC))
    return shape
