"""Answers over HTTP: JSON bodies, and the one table from failure to status."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.types import Send

from snoozeml.errors import SnoozeError
from snoozeml.fronts.manners import new_request_id, retry_after

Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
CLOSE: Final = (b"connection", b"close")

STATUS: Final[Mapping[str, int]] = {
    "invalid_input": 400,
    "shape_mismatch": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limited": 429,
    "head_too_large": 431,
    "cancelled": 499,  # nobody is there to read it; it is what proxies log for a client that left
    "inference_failed": 500,
    "internal": 500,
    "overloaded": 503,
    "model_loading": 503,
    "out_of_memory": 503,
    "worker_crashed": 503,
    "model_failed": 503,
    "not_supported": 501,
    "unsupported_architecture": 501,
    "shutting_down": 503,
    "deadline_exceeded": 504,
}


async def send_reply(send: Send, status: int, body: bytes | memoryview, headers: Headers) -> None:
    """Send one whole answer; `content-length` is added."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


def error_body(error: SnoozeError, request_id: str) -> bytes:
    return msgspec.json.encode(
        {"error": error.message, "code": error.code, "request_id": request_id}
    )


def error_headers(error: SnoozeError, request_id: str) -> Headers:
    headers: Headers = [JSON, (b"x-request-id", request_id.encode())]
    if (seconds := retry_after(error)) is not None:
        headers.append((b"retry-after", b"%d" % seconds))
    if error.code == "unauthenticated":
        headers.append((b"www-authenticate", b'Bearer realm="snoozeml"'))
    if error.code == "shutting_down":
        headers.append(CLOSE)
    return headers


async def send_error(
    send: Send, error: SnoozeError, request_id: str | None, more: Headers | None = None
) -> None:
    """Answer with a failure; without an id from the client it gets one of ours."""
    request_id = request_id or new_request_id()
    headers = error_headers(error, request_id) + (more or [])
    await send_reply(send, STATUS[error.code], error_body(error, request_id), headers)
