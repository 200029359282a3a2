"""The dialect of `snoozeml.v1.InferenceService`: messages to arrays, arrays to messages."""

import struct
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from snoozeml.core.tensors import Signature
from snoozeml.errors import InvalidInput
from snoozeml.wire.assembly import Assembly, Given
from snoozeml.wire.columns import Column, Columns
from snoozeml.wire.dialect import Dialect, WriteRows
from snoozeml.wire.json_values import quoted
from snoozeml.wire.proto.snoozeml_pb2 import (
    DataType,
    ModelInferRequest,
    ModelInferResponse,
    TensorData,
)
from snoozeml.wire.protobuf import Malformed, fields, tag, varint
from snoozeml.wire.raw import from_raw, to_raw
from snoozeml.wire.repeats import Decoded, Repeats
from snoozeml.wire.tensors import DATATYPES, Array

_PREFIX: Final = "DATA_TYPE_"
_DATATYPES: Final = {
    number: name.removeprefix(_PREFIX) for name, number in DataType.items() if number
}
_NUMBERS: Final = {name: DataType.Value(_PREFIX + name) for name in _DATATYPES.values()}

# Fields of an answer: what stands before their values.
_OUTPUTS: Final = tag(ModelInferResponse.OUTPUTS_FIELD_NUMBER)
_NAME: Final = tag(TensorData.NAME_FIELD_NUMBER)
_SHAPE: Final = tag(TensorData.SHAPE_FIELD_NUMBER)
_RAW_DATA: Final = tag(TensorData.RAW_DATA_FIELD_NUMBER)
_DATA_TYPE: Final = varint(TensorData.DATA_TYPE_FIELD_NUMBER << 3)
_FP32: Final = _DATA_TYPE + varint(DataType.DATA_TYPE_FP32)
_DURATION: Final = varint(ModelInferResponse.DURATION_MS_FIELD_NUMBER << 3 | 1)
_PACK_DOUBLE: Final = struct.Struct("<d").pack

_HEADS_KEPT: Final = 64  # of each output, one per shape


class _Reply:
    """How a request wants its answer.

    Attributes:
        native: in the model's datatypes; else numbers come as FP32.
        parameters: of the answer, encoded.
    """

    __slots__ = ("native", "parameters")

    def __init__(self, id: str, native: bool) -> None:
        self.native: Final = native
        echo = ModelInferResponse(parameters={"id": id}) if id else None
        self.parameters: Final[bytes] = echo.SerializeToString() if echo is not None else b""


class GrpcV1(Dialect):
    """Decodes requests to one model and encodes its answers."""

    def __init__(self, model_id: str, signature: Signature) -> None:
        self._assembly: Final = Assembly(signature)
        self._repeats: Final = Repeats(signature, _raw_data)
        self._head: Final[bytes] = ModelInferResponse(model_id=model_id).SerializeToString()
        self._writers: Final = {s.name: _Writer(s.name, s.datatype) for s in signature.outputs}

    def decode(self, body: bytes) -> Decoded:
        """Read a request; every input of the answer fits the signature, defaults included.

        Raises:
            InvalidInput: it is not a request, or names or values do not fit the model.
            ShapeMismatch: shapes do not fit the model, the data or each other.
        """
        if (known := self._repeats.read(body)) is not None:
            return known
        try:
            request = ModelInferRequest.FromString(body)
        except DecodeError as error:
            raise Malformed(f"the message is no valid ModelInferRequest: {error}") from None
        parameters = request.parameters
        datatypes = parameters.get("datatypes", "")
        if datatypes not in ("", "native", "fp32"):
            raise InvalidInput(
                f"parameter datatypes must be native or fp32, not {quoted(datatypes)}"
            )
        reply = _Reply(parameters.get("id", ""), datatypes == "native")
        tensors = [_given(t) for t in request.inputs]
        inference = self._assembly.inference(tensors, None, reply)
        self._repeats.learn(body, tensors, inference)
        return inference

    def encode(
        self, names: Sequence[str], outputs: Sequence[Array], reply: _Reply, duration_s: float
    ) -> bytes:
        """Write an answer; text stays text whatever was asked for."""
        # By hand: each tensor is copied once, where the message classes would do it twice, and
        # small answers take a third of the time.
        pieces = [self._head, _DURATION, _PACK_DOUBLE(duration_s * 1000), reply.parameters]
        for name, array in zip(names, outputs, strict=True):
            pieces += self._writer(name, array).write(array, native=reply.native)
        return b"".join(pieces)

    def rows_writer(
        self, names: Sequence[str], outputs: Sequence[Array], reply: _Reply
    ) -> WriteRows:
        """See `Dialect`; an output is converted once for all requests."""
        if any(array.dtype.hasobject for array in outputs):
            return super().rows_writer(names, outputs, reply)
        pairs = zip(names, outputs, strict=True)
        columns = Columns([self._writer(n, a).column(a, native=reply.native) for n, a in pairs])
        head, tail, join, pack = (
            self._head + _DURATION,
            reply.parameters,
            columns.join,
            _PACK_DOUBLE,
        )
        return lambda rows, duration_s: join([head, pack(duration_s * 1000), tail], rows)

    def _writer(self, name: str, array: Array) -> "_Writer":
        return self._writers.get(name) or _Writer(name, DATATYPES[array.dtype])


class _Writer:
    """Writes one output as a field of the answer."""

    def __init__(self, name: str, datatype: str) -> None:
        encoded = name.encode()
        self._name: Final = _NAME + varint(len(encoded)) + encoded
        self._comes_as_it_is: Final = datatype in ("FP32", "BYTES")
        self._may_overflow: Final = datatype == "FP64"
        self._native: Final = _DATA_TYPE + varint(_NUMBERS[datatype])
        self._head: Final = lru_cache(_HEADS_KEPT)(self._written_head)

    def write(self, array: Array, *, native: bool) -> tuple[bytes, bytes]:
        datatype, data = self._data(array, native)
        return self._head(datatype, array.shape, len(data)), data

    def column(self, array: Array, *, native: bool) -> Column:
        datatype, data = self._data(array, native)
        row_bytes, row_shape = len(data) // len(array), array.shape[1:]
        return Column(
            lambda rows: self._head(datatype, (rows, *row_shape), rows * row_bytes), data, row_bytes
        )

    def _data(self, array: Array, native: bool) -> tuple[bytes, bytes]:
        """The datatype that an answer says, as a field, and the values."""
        if native or self._comes_as_it_is:
            return self._native, to_raw(array)
        return _FP32, to_raw(self._to_floats(array))

    def _written_head(self, datatype: bytes, dims: tuple[int, ...], data_bytes: int) -> bytes:
        """All of the field but the data at its end."""
        shape, size = b"".join(map(varint, dims)), varint(data_bytes)
        head = self._name + _SHAPE + varint(len(shape)) + shape + datatype + _RAW_DATA + size
        return _OUTPUTS + varint(len(head) + data_bytes) + head

    def _to_floats(self, array: Array) -> Array:
        if not self._may_overflow:
            return array.astype(np.float32)
        with np.errstate(over="ignore"):  # a client that reads FP32 gets what FP32 can say
            return array.astype(np.float32)


def _raw_data(body: bytes) -> list[slice]:
    """Where the data of the inputs lie in a valid request."""
    found = []
    for field, tensor in fields(body):
        if field == ModelInferRequest.INPUTS_FIELD_NUMBER and isinstance(tensor, slice):
            parts = dict(fields(body, tensor))
            if isinstance(where := parts.get(TensorData.RAW_DATA_FIELD_NUMBER), slice):
                found.append(where)
    return found


def _given(tensor: TensorData) -> Given:
    name, shape = tensor.name, list(tensor.shape)
    datatype = _DATATYPES.get(tensor.data_type)
    if datatype is None:
        known = ", ".join(DataType.keys()[1:])
        raise InvalidInput(
            f"input {quoted(name)}: unknown data_type {tensor.data_type}; known are {known}"
        )
    return Given(name, datatype, shape, partial(from_raw, name, datatype, shape, tensor.raw_data))
