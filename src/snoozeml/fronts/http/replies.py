"""Answers over HTTP: JSON bodies, and the one table from failure to status."""

import math
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.types import Send

from snoozeml.errors import SnoozeError

Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")

STATUS: Final[Mapping[str, int]] = {
    "invalid_input": 400,
    "shape_mismatch": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
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
    "unsupported_architecture": 501,
    "shutting_down": 503,
    "deadline_exceeded": 504,
}

_RETRY_AFTER: Final = frozenset({"overloaded", "model_loading", "out_of_memory", "model_failed"})
_LONGEST_REQUEST_ID: Final = 128


def new_request_id() -> str:
    return secrets.token_hex(8)


def usable_request_id(given: bytes) -> bool:
    """Take only an id that can be written into a log line and a header as it is."""
    return (
        0 < len(given) <= _LONGEST_REQUEST_ID and given.isascii() and given.decode().isprintable()
    )


async def send_reply(send: Send, status: int, body: bytes, headers: Headers) -> None:
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
    if error.code in _RETRY_AFTER or error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s or 0))))
    if error.code == "unauthenticated":
        headers.append((b"www-authenticate", b'Bearer realm="snoozeml"'))
    if error.code == "shutting_down":
        headers.append((b"connection", b"close"))
    return headers


async def send_error(
    send: Send, error: SnoozeError, request_id: str | None, more: Headers | None = None
) -> None:
    """Answer with a failure; without an id from the client it gets one of ours."""
    request_id = request_id or new_request_id()
    headers = error_headers(error, request_id) + (more or [])
    await send_reply(send, STATUS[error.code], error_body(error, request_id), headers)
