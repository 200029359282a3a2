"""The dialect of `inference.GRPCInferenceService`: messages to arrays, arrays to messages."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from snoozeml.core.names import MODEL_VERSION
from snoozeml.core.tensors import Signature
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire import oip
from snoozeml.wire.assembly import Assembly, Given
from snoozeml.wire.columns import Column, Columns
from snoozeml.wire.conversion import convert_array
from snoozeml.wire.dialect import Dialect, WriteRows
from snoozeml.wire.json_values import quoted, strings
from snoozeml.wire.proto.oip_pb2 import (
    InferParameter,
    ModelInferRequest,
    ModelInferResponse,
)
from snoozeml.wire.protobuf import Malformed, fields, tag, varint
from snoozeml.wire.raw import as_bytes, from_raw, to_raw
from snoozeml.wire.repeats import Decoded, Repeats
from snoozeml.wire.tensors import DTYPES, Array

_Input = ModelInferRequest.InferInputTensor

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Datatype → the field of `InferTensorContents` that carries it."""

_CARRIERS: Final = {"int_contents": np.int32, "uint_contents": np.uint32}
"""The type of the values in fields that several datatypes share."""

_RAW_OUTPUT: Final = tag(ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER)


class _Reply:
    """How a request wants its answer.

    Attributes:
        classes: per output that is to be classified, how many classes.
    """

    __slots__ = ("classes", "id", "raw")

    def __init__(self, id: str, raw: bool, classes: Mapping[str, int]) -> None:
        self.id: Final = id
        self.raw: Final = raw
        self.classes: Final = classes


class OipGrpc(Dialect):
    """Decodes requests to one model and encodes its answers."""

    def __init__(self, model_id: str, signature: Signature) -> None:
        self._model_id: Final = model_id
        self._assembly: Final = Assembly(signature)
        self._repeats: Final = Repeats(signature, _raw_contents)
        self._outputs: Final = oip.Outputs(signature)

    def decode(self, body: bytes) -> Decoded:
        """Read a request; every input of the answer fits the signature, defaults included.

        Raises:
            InvalidInput: it is not a request, or names, values or parameters do not fit the model.
            ShapeMismatch: shapes do not fit the model, the data or each other.
        """
        if (known := self._repeats.read(body)) is not None:
            return known
        try:
            request = ModelInferRequest.FromString(body)
        except DecodeError as error:
            raise Malformed(f"the message is no valid ModelInferRequest: {error}") from None
        oip.check_parameters(_plain(request.parameters))
        classes = {}
        for output in request.outputs:
            parameters = _plain(output.parameters)
            oip.check_tensor_parameters(output.name, parameters)
            if count := oip.classes_asked_for(output.name, parameters):
                classes[output.name] = count
        names = [output.name for output in request.outputs] or None
        reply = _Reply(request.id, bool(request.raw_input_contents), classes)
        tensors = _given(request)
        inference = self._assembly.inference(tensors, names, reply)
        self._repeats.learn(body, tensors, inference)
        return inference

    def encode(
        self, names: Sequence[str], outputs: Sequence[Array], reply: _Reply, _duration_s: float
    ) -> bytes:
        """Write an answer, raw if the request was raw or an output has no other form.

        Raises:
            InvalidInput: text shall be classified, or too much.
        """
        response = self._response(reply)
        arrays: list[Array] = []
        for name, array in zip(names, outputs, strict=True):
            datatype, written = self._outputs.written(name, array, reply.classes.get(name, 0))
            response.outputs.add(name=name, datatype=datatype, shape=written.shape)
            arrays.append(written)
        if reply.raw or any(output.datatype not in _CONTENTS for output in response.outputs):
            return _with_raw(response, arrays)
        for output, array in zip(response.outputs, arrays, strict=True):
            values = as_bytes(array) if array.dtype.hasobject else array.ravel().tolist()
            getattr(output.contents, _CONTENTS[output.datatype]).extend(values)
        encoded: bytes = response.SerializeToString()
        return encoded

    def rows_writer(
        self, names: Sequence[str], outputs: Sequence[Array], reply: _Reply
    ) -> WriteRows:
        """See `Dialect`; the message is encoded once for all requests, and their data put in."""
        if not reply.raw or reply.classes or any(array.dtype.hasobject for array in outputs):
            return super().rows_writer(names, outputs, reply)

        def message(rows: int) -> bytes:
            response = self._response(reply)
            for name, array in zip(names, outputs, strict=True):
                datatype, _ = self._outputs.written(name, array, 0)
                response.outputs.add(name=name, datatype=datatype, shape=(rows, *array.shape[1:]))
            encoded: bytes = response.SerializeToString()
            return encoded

        columns = Columns([Column(message, b"", 0), *map(_raw_column, outputs)])
        return lambda rows, _duration_s: columns.join([], rows)

    def _response(self, reply: _Reply) -> ModelInferResponse:
        return ModelInferResponse(
            model_name=self._model_id, model_version=MODEL_VERSION, id=reply.id
        )


def _raw_column(array: Array) -> Column:
    data = to_raw(array)
    row_bytes = len(data) // len(array)
    return Column(lambda rows: _RAW_OUTPUT + varint(rows * row_bytes), data, row_bytes)


def _with_raw(response: ModelInferResponse, arrays: Sequence[Array]) -> bytes:
    """The data are copied once here, where the message classes would do it twice."""
    pieces = [response.SerializeToString()]
    for array in arrays:
        data = to_raw(array)
        pieces += (_RAW_OUTPUT, varint(len(data)), data)
    return b"".join(pieces)


def _raw_contents(body: bytes) -> list[slice]:
    """Where the raw contents of the inputs lie in a valid request."""
    wanted = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
    return [where for n, where in fields(body) if n == wanted and isinstance(where, slice)]


def _given(request: ModelInferRequest) -> list[Given]:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidInput(
            f"raw_input_contents must have one entry per input, so {len(request.inputs)},"
            f" got {len(raw)}"
        )
    tensors = []
    for index, tensor in enumerate(request.inputs):
        oip.check_tensor_parameters(tensor.name, tensor.parameters)
        if not raw:
            read: Callable[[], Array] = partial(_from_contents, tensor)
        elif tensor.HasField("contents") and tensor.contents.ByteSize():
            raise InvalidInput(
                f"input {quoted(tensor.name)} has contents, and there is raw_input_contents as"
                " well; use one of them for all inputs"
            )
        else:
            read = partial(from_raw, tensor.name, tensor.datatype, tensor.shape, raw[index])
        tensors.append(Given(tensor.name, tensor.datatype, list(tensor.shape), read))
    return tensors


def _from_contents(tensor: _Input) -> Array:
    """Read values that stand in the field for their datatype."""
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise InvalidInput(
            f"input {quoted(tensor.name)}: {tensor.datatype} has no contents of its own; send it in"
            " raw_input_contents"
        )
    filled = [found.name for found, _ in tensor.contents.ListFields() if found.name != field]
    if filled:
        raise InvalidInput(
            f"input {quoted(tensor.name)}: {tensor.datatype} goes into {field}, found {filled[0]}"
        )
    values = getattr(tensor.contents, field)
    _check_count(tensor, len(values))
    if tensor.datatype == "BYTES":
        return strings(list(values), DTYPES["BYTES"])
    # INT8 travels as int32, and so on; a value too large for it is found out here.
    carrier = np.dtype(_CARRIERS.get(field, DTYPES[tensor.datatype]))
    return convert_array(np.array(values, carrier), DTYPES[tensor.datatype])


def _check_count(tensor: _Input, count: int) -> None:
    wanted = math.prod(tensor.shape)
    if count != wanted:
        raise ShapeMismatch(
            f"input {quoted(tensor.name)}: the shape {list(tensor.shape)} holds {wanted} values,"
            f" contents have {count}"
        )


def _plain(parameters: Mapping[str, InferParameter]) -> dict[str, Any]:
    """Parameters with the values that they carry; None where one carries none."""
    plain: dict[str, Any] = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        plain[name] = getattr(parameter, choice) if choice else None
    return plain
