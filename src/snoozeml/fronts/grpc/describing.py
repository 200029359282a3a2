"""The calls of `inference.GRPCInferenceService` that describe and control, none of them in a hurry.

Importing this loads protobuf, which the daemon does without until one of them is called.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError, Message

from snoozeml.errors import InvalidInput
from snoozeml.fronts.grpc.calls import Answer
from snoozeml.serving.oip import OpenInference
from snoozeml.wire.proto import oip_pb2 as pb


async def answer(name: str, server: OpenInference, body: bytes) -> Answer:
    """Answer a call of the method with this name."""
    request_class, ask = _METHODS[name]
    try:
        request = request_class.FromString(body)
    except DecodeError as error:
        raise InvalidInput(f"the message is no valid {name}Request: {error}") from None
    response = await ask(server, request)
    return Answer(response.SerializeToString())


async def _server_live(_server: OpenInference, _request: Message) -> Message:
    return pb.ServerLiveResponse(live=True)


async def _server_ready(server: OpenInference, _request: Message) -> Message:
    return pb.ServerReadyResponse(ready=server.is_ready())


async def _model_ready(server: OpenInference, request: pb.ModelReadyRequest) -> Message:
    return pb.ModelReadyResponse(ready=server.model_is_ready(request.name, request.version))


async def _server_metadata(server: OpenInference, _request: Message) -> Message:
    return pb.ServerMetadataResponse(**_members(server.server()))


async def _model_metadata(server: OpenInference, request: pb.ModelMetadataRequest) -> Message:
    return pb.ModelMetadataResponse(**_members(await server.model(request.name, request.version)))


async def _model_config(server: OpenInference, request: pb.ModelConfigRequest) -> Message:
    config = await server.model_config(request.name, request.version)
    return pb.ModelConfigResponse(config=_members(config))


async def _model_statistics(server: OpenInference, request: pb.ModelStatisticsRequest) -> Message:
    found = server.statistics(request.name, request.version)
    return pb.ModelStatisticsResponse(model_stats=map(_members, found))


async def _repository_index(server: OpenInference, request: pb.RepositoryIndexRequest) -> Message:
    found = server.index(ready_only=request.ready)
    return pb.RepositoryIndexResponse(models=map(_members, found))


async def _load(server: OpenInference, request: pb.RepositoryModelLoadRequest) -> Message:
    await server.load(request.model_name, dict(request.parameters))
    return pb.RepositoryModelLoadResponse()


async def _unload(server: OpenInference, request: pb.RepositoryModelUnloadRequest) -> Message:
    await server.unload(request.model_name, dict(request.parameters))
    return pb.RepositoryModelUnloadResponse()


def _members(value: msgspec.Struct) -> dict[str, Any]:
    """What the constructor of the message with the same members takes."""
    members: dict[str, Any] = msgspec.to_builtins(value)
    return members


_Ask = Callable[[OpenInference, Any], Awaitable[Message]]

_METHODS: Final[Mapping[str, tuple[type[Message], _Ask]]] = {
    "ServerLive": (pb.ServerLiveRequest, _server_live),
    "ServerReady": (pb.ServerReadyRequest, _server_ready),
    "ModelReady": (pb.ModelReadyRequest, _model_ready),
    "ServerMetadata": (pb.ServerMetadataRequest, _server_metadata),
    "ModelMetadata": (pb.ModelMetadataRequest, _model_metadata),
    "ModelConfig": (pb.ModelConfigRequest, _model_config),
    "ModelStatistics": (pb.ModelStatisticsRequest, _model_statistics),
    "RepositoryIndex": (pb.RepositoryIndexRequest, _repository_index),
    "RepositoryModelLoad": (pb.RepositoryModelLoadRequest, _load),
    "RepositoryModelUnload": (pb.RepositoryModelUnloadRequest, _unload),
}
