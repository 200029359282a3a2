"""The ASGI application: the infer route as short as it can be, everything else by Starlette."""

import asyncio
import contextlib
import logging
import re
import time
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from snoozeml.core.names import as_model_id
from snoozeml.core.request import Codec, InferenceRequest
from snoozeml.errors import (
    Cancelled,
    Internal,
    InvalidInput,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    SnoozeError,
    UnsupportedMediaType,
)
from snoozeml.fronts.http.connection import STATE_KEY, Connection
from snoozeml.fronts.http.replies import (
    JSON,
    STATUS,
    Headers,
    error_body,
    error_headers,
    send_error,
    send_reply,
)
from snoozeml.fronts.http.routes import ColdRoutes
from snoozeml.fronts.manners import (
    LONGEST_TIMEOUT_MS,
    fails_fast,
    new_request_id,
    usable_request_id,
)
from snoozeml.lifecycle.registry import Registry
from snoozeml.serving.inference import Serving

_log = logging.getLogger("snoozeml.http")

_MODELS: Final = "/v1/models/"
_INFER: Final = "/infer"
# After a body that is too large, this much more is read and thrown away, so that a client that
# writes before it reads finds the answer rather than a reset connection.
_SWALLOW_BYTES: Final = 1024 * 1024
_SWALLOW_S: Final = 1.0


class _Peek(msgspec.Struct):
    """The only part of a JSON body that the daemon looks at."""

    timeout_ms: Any = None


_PLAIN_TIMEOUT: Final = re.compile(rb'"timeout_ms"\s*:\s*([0-9]+(?:\.[0-9]+)?)')
_peek_decoder = msgspec.json.Decoder(_Peek)


class Request:
    """The headers of one request, read once."""

    __slots__ = ("cold", "content_encoding", "content_length", "content_type", "id", "timeout_ms")

    def __init__(self, scope: Scope) -> None:
        self.content_encoding = self.content_length = self.content_type = b""
        self.cold = b"wait"
        self.timeout_ms: bytes | None = None
        self.id: str | None = None
        for name, value in scope["headers"]:
            if name == b"content-length":
                self.content_length = value
            elif name == b"content-type":
                self.content_type = value
            elif name == b"content-encoding":
                self.content_encoding = value
            elif name == b"x-request-timeout-ms":
                self.timeout_ms = value
            elif name == b"x-snooze-cold":
                self.cold = value
            elif name == b"x-request-id" and usable_request_id(value):
                self.id = value.decode()


class HttpApp:
    """Answers every HTTP request of the daemon."""

    def __init__(
        self, serving: Serving, registry: Registry, routes: ColdRoutes, max_request_bytes: int
    ) -> None:
        self._serving = serving
        self._registry = registry
        self._cold = routes.router(self)
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            path: str = scope["path"]
            if scope["method"] == "POST" and path.endswith(_INFER) and path.startswith(_MODELS):
                await self._infer(request, scope, receive, send)
            else:
                scope["app"] = self  # Starlette raises its 404 and 405 only inside an application
                await self._cold(scope, receive, _echoing(request, send))
        except Cancelled:
            pass  # nobody is left to answer
        except PayloadTooLarge as error:
            await _refuse_body(error, request, receive, send)
        except SnoozeError as error:
            await _send_failure(error, request, scope, send)
        except HTTPException as error:
            await _send_http_exception(error, request, scope, send)
        except Exception:
            request_id = request.id or new_request_id()
            _log.exception("request failed", extra={"fields": {"request_id": request_id}})
            await send_error(
                send, Internal(f"internal error; see the log: {request_id}"), request_id
            )

    async def _infer(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        model_id = as_model_id(scope["path"][len(_MODELS) : -len(_INFER)])
        config = self._registry.get(model_id).config
        check_media_type(request)
        body = await self._read_body(request, receive)
        arrived_at = time.monotonic()
        timeout_s = timeout_in(request, body) or config.request_timeout_secs
        connection = cast(Connection, scope["state"][STATE_KEY])
        inference = InferenceRequest(
            model_id,
            Codec.JSON_V1,
            body,
            arrived_at,
            arrived_at + timeout_s,
            fail_fast=fails_fast("header X-Snooze-Cold", request.cold),
        )
        result = await self._serving.infer(inference, connection)
        headers: Headers = [
            JSON,
            (b"x-snooze-queue-ms", b"%.3f" % (result.queue_s * 1000)),
            (b"x-snooze-batch-size", b"%d" % result.batch_size),
        ]
        if result.cold_start_s is not None:
            headers.append((b"x-snooze-cold-start-ms", b"%.3f" % (result.cold_start_s * 1000)))
        if request.id is not None:
            headers.append((b"x-request-id", request.id.encode()))
        connection.answers.hold()
        try:
            await send_reply(send, 200, result.body, headers)
        finally:
            connection.answers.release()

    async def _read_body(self, request: Request, receive: Receive) -> list[bytes]:
        """Read the whole body.

        Raises:
            PayloadTooLarge: by its announced length, before anything is read, or once it has grown
                past the limit.
            Cancelled: the client left before the body was complete.
        """
        size = int(request.content_length or 0)
        self._check_size(size)
        size = 0
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Cancelled("the client left before its request was complete")
            piece: bytes = message["body"]
            pieces.append(piece)
            if not message["more_body"]:
                self._check_size(size + len(piece))
                return pieces
            size += len(piece)
            self._check_size(size)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_request_bytes:
            raise PayloadTooLarge(
                f"the body is larger than the limit of {self._max_request_bytes} bytes "
                "(max_request_bytes)"
            )


def _echoing(request: Request, send: Send) -> Send:
    """Add the client's request id, if it sent one, to the answer."""
    if request.id is None:
        return send
    header = (b"x-request-id", request.id.encode())

    async def echo(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], header]
        await send(message)

    return echo


async def _refuse_body(
    error: PayloadTooLarge, request: Request, receive: Receive, send: Send
) -> None:
    """Answer, then read on for a moment: closing on unread bytes would reset the connection, and
    a client that is still writing would find that instead of the answer.
    """
    request_id = request.id or new_request_id()
    body = error_body(error, request_id)
    headers = [
        *error_headers(error, request_id),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": STATUS[error.code], "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    swallowed = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SWALLOW_S):
            while swallowed < _SWALLOW_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message["more_body"]:
                    break
                swallowed += len(message["body"])
    await send({"type": "http.response.body", "body": b""})


async def _send_failure(error: SnoozeError, request: Request, scope: Scope, send: Send) -> None:
    request_id = request.id or new_request_id()
    if _log.isEnabledFor(logging.DEBUG):
        fields = {
            "request_id": request_id,
            "path": scope["path"],
            "code": error.code,
            "message": error.message,
        }
        _log.debug("refused", extra={"fields": fields})
    await send_error(send, error, request_id)


async def _send_http_exception(
    error: HTTPException, request: Request, scope: Scope, send: Send
) -> None:
    method, path = scope["method"], scope["path"]
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        await send_error(send, NotFound(f"there is nothing at {path}; see /"), request.id)
        return
    allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
    allow: Headers = [(b"allow", f"{allowed}, OPTIONS".encode())]
    if method == "OPTIONS":
        await send(
            {"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": allow}
        )
        await send({"type": "http.response.body", "body": b""})
        return
    refusal = MethodNotAllowed(f"{path} does not take {method}, only {allowed}")
    await send_error(send, refusal, request.id, allow)


def check_media_type(request: Request) -> None:
    """Refuse what is certainly not JSON; a client that says nothing is believed.

    Raises:
        UnsupportedMediaType: with what would be right.
    """
    media_type = request.content_type.partition(b";")[0].strip().lower()
    if media_type and media_type != b"application/json" and not media_type.endswith(b"+json"):
        given = media_type.decode("latin-1")
        raise UnsupportedMediaType(f"send content-type application/json, not {given}")
    if request.content_encoding and request.content_encoding.lower() != b"identity":
        given = request.content_encoding.decode("latin-1")
        raise UnsupportedMediaType(f"send the body without content-encoding, not as {given}")


def timeout_in(request: Request, body: list[bytes]) -> float | None:
    """The time limit that the client asked for, in seconds; the shorter one where it names two.

    Raises:
        InvalidInput: it is not a positive number.
    """
    whole = body[0] if len(body) == 1 else b"".join(body)
    # Looking for the key is far cheaper than parsing a body in which it almost never is.
    mentioned = b'"timeout_ms"' in whole
    if not mentioned and request.timeout_ms is None:
        return None
    limits_s: list[float] = []
    if request.timeout_ms is not None:
        limits_s.append(
            _timeout_s("header X-Request-Timeout-Ms", request.timeout_ms.decode("latin-1"))
        )
    given = _peek(whole) if mentioned else None
    if given is not None:
        limits_s.append(_timeout_s("timeout_ms", given))
    return min(limits_s, default=None)


def _peek(body: bytes) -> Any:
    """What a body says about `timeout_ms`; None where it says nothing or cannot be read."""
    try:
        return _peek_decoder.decode(body).timeout_ms
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not JSON, which the worker will tell; or JSON with NaN in it, which it will accept.
        found = _PLAIN_TIMEOUT.search(body)
        return float(found[1]) if found is not None else None


def _timeout_s(where: str, given: Any) -> float:
    try:
        timeout_ms = msgspec.convert(given, type=float, strict=not isinstance(given, str))
    except msgspec.ValidationError:
        timeout_ms = 0.0
    if not 0 < timeout_ms <= LONGEST_TIMEOUT_MS:
        raise InvalidInput(
            f"{where} must be a number of milliseconds above 0 and up to {LONGEST_TIMEOUT_MS}, "
            f"not {given!r:.60}"
        )
    return timeout_ms / 1000
