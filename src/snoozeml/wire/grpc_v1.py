"""The dialect of `snoozeml.v1.InferenceService`: messages to arrays, arrays to messages."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from snoozeml.core.tensors import Signature
from snoozeml.errors import InvalidInput
from snoozeml.wire.assembly import Assembly, Given
from snoozeml.wire.proto.snoozeml_pb2 import (
    DataType,
    ModelInferRequest,
    ModelInferResponse,
    TensorData,
)
from snoozeml.wire.protobuf import Malformed, delimited
from snoozeml.wire.raw import from_raw, to_raw
from snoozeml.wire.tensors import Array, Inference

_PREFIX: Final = "DATA_TYPE_"
_DATATYPES: Final = {
    number: name.removeprefix(_PREFIX) for name, number in DataType.items() if number
}
_NUMBERS: Final = {name: DataType.Value(_PREFIX + name) for name in _DATATYPES.values()}

_OUTPUTS: Final = ModelInferResponse.OUTPUTS_FIELD_NUMBER
_RAW_DATA: Final = TensorData.RAW_DATA_FIELD_NUMBER


class _Reply:
    """How a request wants its answer.

    Attributes:
        native: in the model's datatypes; else numbers come as FP32.
    """

    __slots__ = ("id", "native")

    def __init__(self, id: str, native: bool) -> None:
        self.id: Final = id
        self.native: Final = native


class GrpcV1:
    """Decodes requests to one model and encodes its answers."""

    def __init__(self, model_id: str, signature: Signature) -> None:
        self._model_id: Final = model_id
        self._assembly: Final = Assembly(signature)
        self._datatypes: Final = {spec.name: spec.datatype for spec in signature.outputs}

    def decode(self, body: bytes) -> Inference:
        """Read a request; every input of the answer fits the signature, defaults included.

        Raises:
            InvalidInput: it is not a request, or names or values do not fit the model.
            ShapeMismatch: shapes do not fit the model, the data or each other.
        """
        try:
            request = ModelInferRequest.FromString(body)
        except DecodeError as error:
            raise Malformed(f"the message is no valid ModelInferRequest: {error}") from None
        parameters = request.parameters
        datatypes = parameters.get("datatypes", "")
        if datatypes not in ("", "native", "fp32"):
            raise InvalidInput(f"parameter datatypes must be native or fp32, not {datatypes!r:.60}")
        reply = _Reply(parameters.get("id", ""), datatypes == "native")
        return self._assembly.inference([_given(t) for t in request.inputs], None, reply)

    def encode(
        self, names: Sequence[str], outputs: Sequence[Array], reply: _Reply, duration_s: float
    ) -> bytes:
        """Write an answer; text stays text whatever was asked for."""
        head = ModelInferResponse(model_id=self._model_id, duration_ms=duration_s * 1000)
        if reply.id:
            head.parameters["id"] = reply.id
        pieces = [head.SerializeToString()]
        for name, array in zip(names, outputs, strict=True):
            datatype = self._datatypes[name]
            if not reply.native and datatype != "BYTES":
                datatype = "FP32"
                with np.errstate(over="ignore"):  # a client that reads FP32 gets what FP32 can say
                    array = array.astype(np.float32, copy=False)
            pieces += _tensor(name, datatype, array)
        return b"".join(pieces)


def _given(tensor: TensorData) -> Given:
    name, shape = tensor.name, list(tensor.shape)
    datatype = _DATATYPES.get(tensor.data_type)
    if datatype is None:
        known = ", ".join(DataType.keys()[1:])
        raise InvalidInput(
            f"input {name!r:.60}: unknown data_type {tensor.data_type}; known are {known}"
        )
    return Given(name, datatype, shape, partial(from_raw, name, datatype, shape, tensor.raw_data))


def _tensor(name: str, datatype: str, array: Array) -> tuple[bytes, ...]:
    """One output as a field of the answer: its data is copied once here, where the message
    classes would do it twice.
    """
    data = to_raw(array)
    head = TensorData(name=name, shape=array.shape, data_type=_NUMBERS[datatype])
    encoded = head.SerializeToString() + delimited(_RAW_DATA, len(data))
    return delimited(_OUTPUTS, len(encoded) + len(data)), encoded, data
