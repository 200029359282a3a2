"""The calls of `inference.GRPCInferenceService` that describe and control, none of them in a hurry.

Importing this loads protobuf, which the daemon does without until one of them is called.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError, Message

from snoozeml.core.names import as_model_id
from snoozeml.errors import InvalidInput
from snoozeml.fronts.grpc.calls import Answer
from snoozeml.serving.auth import Action, Principal
from snoozeml.serving.oip import OpenInference
from snoozeml.wire.proto import oip_pb2 as pb

_May = Callable[[Action, str | None], Principal]


async def answer(name: str, server: OpenInference, may: _May, body: bytes) -> Answer:
    """Answer a call of the method with this name.

    Args:
        may: raises if whoever calls may not do this with that model.
    """
    action, request_class, ask = _METHODS[name]
    try:
        request = request_class.FromString(body)
    except DecodeError as error:
        may(action, None)  # a stranger hears that he is one, and nothing else
        raise InvalidInput(f"the message is no valid {name}Request: {error}") from None
    named = getattr(request, "name", "") or getattr(request, "model_name", "")
    principal = may(action, as_model_id(named) if named else None)
    response = await ask(server, request)
    _leave_out_unseen(response, principal)
    return Answer(response.SerializeToString())


def _leave_out_unseen(response: Any, principal: Principal) -> None:
    """Take models out of a list of them that are not for this client."""
    for field in ("model_stats", "models"):
        if field in response.DESCRIPTOR.fields_by_name:
            listed = getattr(response, field)
            seen = [model for model in listed if principal.may_use(model.name)]
            del listed[:]
            listed.extend(seen)


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

_METHODS: Final[Mapping[str, tuple[Action, type[Message], _Ask]]] = {
    "ServerLive": (Action.PUBLIC, pb.ServerLiveRequest, _server_live),
    "ServerReady": (Action.PUBLIC, pb.ServerReadyRequest, _server_ready),
    "ModelReady": (Action.READONLY, pb.ModelReadyRequest, _model_ready),
    "ServerMetadata": (Action.PUBLIC, pb.ServerMetadataRequest, _server_metadata),
    "ModelMetadata": (Action.READONLY, pb.ModelMetadataRequest, _model_metadata),
    "ModelConfig": (Action.READONLY, pb.ModelConfigRequest, _model_config),
    "ModelStatistics": (Action.READONLY, pb.ModelStatisticsRequest, _model_statistics),
    "RepositoryIndex": (Action.READONLY, pb.RepositoryIndexRequest, _repository_index),
    "RepositoryModelLoad": (Action.ADMIN, pb.RepositoryModelLoadRequest, _load),
    "RepositoryModelUnload": (Action.ADMIN, pb.RepositoryModelUnloadRequest, _unload),
}
