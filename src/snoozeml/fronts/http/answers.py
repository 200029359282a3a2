"""Good answers to inference requests."""

from typing import cast

from starlette.types import Scope, Send

from snoozeml.core.request import InferenceResult
from snoozeml.fronts.http.connection import STATE_KEY, Connection
from snoozeml.fronts.http.replies import Headers, send_reply


def connection_of(scope: Scope) -> Connection:
    """The connection that a request came on."""
    return cast(Connection, scope["state"][STATE_KEY])


def result_headers(result: InferenceResult, request_id: str | None) -> Headers:
    """How an inference went."""
    headers: Headers = [
        (b"x-snooze-queue-ms", b"%.3f" % (result.queue_s * 1000)),
        (b"x-snooze-batch-size", b"%d" % result.batch_size),
    ]
    if result.cold_start_s is not None:
        headers.append((b"x-snooze-cold-start-ms", b"%.3f" % (result.cold_start_s * 1000)))
    if request_id is not None:
        headers.append((b"x-request-id", request_id.encode()))
    return headers


async def send_at_once(
    connection: Connection, send: Send, body: bytes | memoryview, headers: Headers
) -> None:
    """Send a good answer, head and body in one system call where the client reads."""
    if not connection.answer(headers, body):
        await send_reply(send, 200, body, headers)
