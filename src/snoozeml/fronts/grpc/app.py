"""Every method that is served over gRPC, by its path."""

import importlib
from collections.abc import Awaitable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Self

from snoozeml.errors import NotSupported
from snoozeml.fronts.grpc.calls import Answer, Asking, Call, Failure, Streaming, Unary
from snoozeml.fronts.grpc.health import HealthCalls
from snoozeml.fronts.grpc.held import HeldMessages
from snoozeml.fronts.grpc.inference import InferenceCalls
from snoozeml.fronts.grpc.status import failure_of
from snoozeml.fronts.limits import ClientLimits
from snoozeml.lifecycle.registry import Registry
from snoozeml.serving.auth import Authoriser
from snoozeml.serving.control import Control
from snoozeml.serving.inference import Serving
from snoozeml.serving.oip import OpenInference

_V1: Final = "/snoozeml.v1.InferenceService/"
_OIP: Final = "/inference.GRPCInferenceService/"
_HEALTH: Final = "/grpc.health.v1.Health/"

_DESCRIBING: Final = (
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig",
    "ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload",
)  # fmt: skip
_NOT_SERVED: Final = {
    "SystemSharedMemoryStatus": "shared memory",
    "SystemSharedMemoryRegister": "shared memory",
    "SystemSharedMemoryUnregister": "shared memory",
    "CudaSharedMemoryStatus": "shared memory",
    "CudaSharedMemoryRegister": "shared memory",
    "CudaSharedMemoryUnregister": "shared memory",
    "TraceSetting": "tracing",
    "LogSettings": "changing the log's settings",
}


class GrpcApp:
    """What the servers serve.

    Attributes:
        unary, streaming: handlers by path.
        asking: in two steps, some of those that `unary` has in one.
        held: what whoever serves them has not answered yet.
    """

    def __init__(
        self,
        unary: Mapping[str, Unary],
        streaming: Mapping[str, Streaming],
        held: HeldMessages,
        asking: Mapping[str, Asking] = MappingProxyType({}),
    ) -> None:
        self.unary: Final = {**unary, **{path: asks.answer for path, asks in asking.items()}}
        self.streaming: Final = streaming
        self.asking: Final = asking
        self.held: Final = held

    @classmethod
    def over(
        cls,
        serving: Serving,
        registry: Registry,
        control: Control,
        authoriser: Authoriser,
        limits: ClientLimits,
    ) -> Self:
        """Everything that the daemon serves."""
        held = HeldMessages(limits)
        calls = InferenceCalls(serving, registry, authoriser, limits.request_bytes, held)
        health = HealthCalls(serving)
        describing = partial(_describing, OpenInference(serving, registry, control), authoriser)
        asking: dict[str, Asking] = {
            _V1 + "Infer": calls.infer,
            _OIP + "ModelInfer": calls.model_infer,
        }
        unary: dict[str, Unary] = {
            _HEALTH + "Check": health.check,
            **{_OIP + name: describing(name) for name in _DESCRIBING},
            **{_OIP + name: _not_served(name, what) for name, what in _NOT_SERVED.items()},
        }
        streaming: dict[str, Streaming] = {
            _V1 + "InferStream": calls.infer_stream,
            _OIP + "ModelStreamInfer": calls.model_stream_infer,
            _HEALTH + "Watch": health.watch,
        }
        return cls(unary, streaming, held, asking)

    async def answer(self, handler: Unary, call: Call, body: bytes) -> Answer | Failure:
        """Answer one message; raises nothing but cancellation."""
        try:
            with self.held.holding(len(body)):
                return await handler(call, body)
        except Exception as error:  # whatever it is, the client must hear of it
            return failure_of(error, call)


def _describing(open_inference: OpenInference, authoriser: Authoriser, name: str) -> Unary:
    def answer(call: Call, body: bytes) -> Awaitable[Answer]:
        # Its message classes stay out of memory for as long as nobody asks.
        module = importlib.import_module("snoozeml.fronts.grpc.describing")
        may = partial(authoriser.check, call.credentials)
        found: Awaitable[Answer] = module.answer(name, open_inference, may, body)
        return found

    return answer


def _not_served(name: str, what: str) -> Unary:
    async def refuse(_call: Call, _body: bytes) -> Answer:
        raise NotSupported(f"{name} is not served: {what} is not supported")

    return refuse
