"""A client of `snoozeml.v1` that sends exactly the bytes it is told to."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

import grpc
import numpy as np
import numpy.typing as npt

from snoozeml.wire.proto.snoozeml_pb2 import (
    DataType,
    ModelInferRequest,
    ModelInferResponse,
    TensorData,
)

INFER: Final = "/snoozeml.v1.InferenceService/Infer"
INFER_STREAM: Final = "/snoozeml.v1.InferenceService/InferStream"
MODEL_INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
MODEL_STREAM_INFER: Final = "/inference.GRPCInferenceService/ModelStreamInfer"
CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"

_TIMEOUT_S: Final = 30.0
_DTYPES: Final = {
    "FP32": "<f4", "FP16": "<f2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1", "BOOL": "?",
    "INT8": "i1", "INT16": "<i2", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "FP64": "<f8",
}  # fmt: skip

Array = npt.NDArray[Any]
Metadata = Sequence[tuple[str, str]]


class Refused(NamedTuple):
    """How a call ended that did not end well."""

    code: grpc.StatusCode
    message: str
    trailing: dict[str, str]


class Reply(NamedTuple):
    body: bytes
    trailing: dict[str, str]


def tensor(name: str, array: Array, datatype: str | None = None) -> TensorData:
    """An array as FP32, which existing clients send whatever the model takes."""
    datatype = datatype or "FP32"
    raw = array.astype(_DTYPES[datatype]).tobytes()
    number = DataType.Value(f"DATA_TYPE_{datatype}")
    return TensorData(name=name, shape=array.shape, data_type=number, raw_data=raw)


def request(model_id: str, *inputs: TensorData, **members: Any) -> bytes:
    message = ModelInferRequest(model_id=model_id, inputs=inputs, **members)
    return bytes(message.SerializeToString())


def outputs(body: bytes) -> dict[str, Array]:
    """Outputs of an answer by name, in the datatypes that they say they have."""
    found = {}
    for output in ModelInferResponse.FromString(body).outputs:
        datatype = DataType.Name(output.data_type).removeprefix("DATA_TYPE_")
        flat = np.frombuffer(output.raw_data, _DTYPES[datatype])
        found[output.name] = flat.reshape(tuple(output.shape))
    return found


def refused(error: grpc.RpcError) -> Refused:
    return Refused(error.code(), error.details() or "", _plain(error.trailing_metadata()))


class Client:
    """One connection.

    Args:
        credentials: what it trusts and shows over TLS; None: no TLS.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # or connections would be shared
        ]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options)

    def call(
        self,
        method: str,
        body: bytes,
        timeout_s: float = _TIMEOUT_S,
        metadata: Metadata = (),
    ) -> Reply | Refused:
        """One message for one, as bytes."""
        try:
            answer, call = self.channel.unary_unary(method).with_call(
                body, timeout=timeout_s, metadata=metadata
            )
        except grpc.RpcError as error:
            return refused(error)
        return Reply(answer, _plain(call.trailing_metadata()))

    def infer(self, model_id: str, *inputs: TensorData, **members: Any) -> dict[str, Array]:
        """Infer with success."""
        reply = self.call(INFER, request(model_id, *inputs, **members))
        assert isinstance(reply, Reply), reply
        return outputs(reply.body)

    def stream(
        self, method: str, bodies: Iterable[bytes], timeout_s: float = _TIMEOUT_S
    ) -> Iterator[bytes]:
        """Messages for messages; iterating raises grpc.RpcError."""
        found: Iterator[bytes] = self.channel.stream_stream(method)(iter(bodies), timeout=timeout_s)
        return found

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plain(metadata: Any) -> dict[str, str]:
    return dict(metadata or ())
