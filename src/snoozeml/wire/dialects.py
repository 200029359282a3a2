"""Every dialect that a worker understands."""

from snoozeml.core.request import Codec
from snoozeml.core.tensors import Signature
from snoozeml.wire.dialect import Dialect
from snoozeml.wire.grpc_v1 import GrpcV1
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.oip_grpc import OipGrpc
from snoozeml.wire.oip_rest import OipRest


def dialects(model_id: str, signature: Signature) -> dict[int, Dialect]:
    """A codec of each dialect for one model, by its number in a frame."""
    return {
        Codec.JSON_V1: JsonV1(model_id, signature),
        Codec.GRPC_V1: GrpcV1(model_id, signature),
        Codec.OIP_GRPC: OipGrpc(model_id, signature),
        Codec.OIP_REST: OipRest(model_id, signature),
    }
