"""Every dialect that a worker understands."""

from collections.abc import Sequence
from typing import Any, Protocol

from snoozeml.core.request import Codec
from snoozeml.core.tensors import Signature
from snoozeml.wire.grpc_v1 import GrpcV1
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.oip_grpc import OipGrpc
from snoozeml.wire.oip_rest import OipRest
from snoozeml.wire.tensors import Array, Inference


class Dialect(Protocol):
    """Decodes requests to one model and encodes its answers."""

    def decode(self, body: bytes, /) -> Inference:
        """Read a request; every input fits the signature, defaults included.

        Raises:
            InvalidInput: it is no request, or does not fit the model.
        """

    def encode(
        self,
        names: Sequence[str],
        outputs: Sequence[Array],
        reply_as: Any,
        duration_s: float,
        /,
    ) -> bytes:
        """Write an answer; `reply_as` is what `decode` noted in the request."""


def dialects(model_id: str, signature: Signature) -> dict[int, Dialect]:
    """A codec of each dialect for one model, by its number in a frame."""
    return {
        Codec.JSON_V1: JsonV1(model_id, signature),
        Codec.GRPC_V1: GrpcV1(model_id, signature),
        Codec.OIP_GRPC: OipGrpc(model_id, signature),
        Codec.OIP_REST: OipRest(model_id, signature),
    }
