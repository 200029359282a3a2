"""`grpc.health.v1.Health`, whose messages are small enough to be written by hand.

Probes come every few seconds; for them alone no library is loaded.
"""

from collections.abc import AsyncIterator
from typing import Final

from snoozeml.errors import NotFound, ShuttingDown
from snoozeml.fronts.grpc.calls import Answer, Call, Write
from snoozeml.serving.inference import Serving
from snoozeml.wire.protobuf import fields, text

SERVICES: Final = ("", "snoozeml.v1.InferenceService", "inference.GRPCInferenceService")
"""Those that can be asked about; the empty name is the whole server."""

_SERVING: Final = b"\x08\x01"
_NOT_SERVING: Final = b"\x08\x02"
_SERVICE_UNKNOWN: Final = b"\x08\x03"


class HealthCalls:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def check(self, _call: Call, body: bytes) -> Answer:
        service = _service(body)
        if service not in SERVICES:
            raise NotFound(f"unknown service {service!r:.100}; known are {', '.join(SERVICES[1:])}")
        return Answer(_NOT_SERVING if self._serving.draining else _SERVING)

    async def watch(self, _call: Call, messages: AsyncIterator[bytes], write: Write) -> None:
        """Tell now, and when it changes: once, as the server begins to shut down."""
        known = _service(await anext(messages, b"")) in SERVICES
        await write(_SERVING if known else _SERVICE_UNKNOWN)
        await self._serving.until_draining()
        if known:
            await write(_NOT_SERVING)
        raise ShuttingDown("the server is shutting down")


def _service(body: bytes) -> str:
    """The name in a HealthCheckRequest."""
    name = ""
    for field, value in fields(body):
        if field == 1:
            name = text(body, value)
    return name
