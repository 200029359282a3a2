"""The ASGI application: the infer routes as short as they can be, all else by Starlette."""

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from snoozeml.errors import (
    Cancelled,
    Internal,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    SnoozeError,
)
from snoozeml.fronts.http.replies import CLOSE, Headers, send_error
from snoozeml.fronts.http.request import SCOPE_KEY, Request
from snoozeml.fronts.manners import new_request_id

_log = logging.getLogger("snoozeml.http")


class InferRoute(Protocol):
    """A route in a hurry."""

    @staticmethod
    def takes(path: str) -> bool: ...

    async def answer(
        self, request: Request, scope: Scope, receive: Receive, send: Send
    ) -> None: ...


class ColdRoutes(Protocol):
    """Routes that are not."""

    def routes(self, infer: ASGIApp) -> list[Route]:
        """All of them.

        Args:
            infer: what answers the infer route; listed so that its path is known, and other
                methods than POST are refused.
        """


class HttpApp:
    """Answers every HTTP request of the daemon."""

    def __init__(self, infer: Sequence[InferRoute], cold: Sequence[ColdRoutes]) -> None:
        self._infer = infer
        routes = [route for group in cold for route in group.routes(self)]
        self._cold = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            if scope["method"] == "POST":
                path: str = scope["path"]
                for route in self._infer:
                    if route.takes(path):
                        await route.answer(request, scope, receive, send)
                        return
            scope[SCOPE_KEY] = request
            scope["app"] = self  # Starlette raises its 404 and 405 only inside an application
            await self._cold(scope, receive, _echoing(request, send))
        except Cancelled:
            pass  # nobody is left to answer
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
    too_large = isinstance(error, PayloadTooLarge) and not request.is_read
    await send_error(send, error, request_id, [CLOSE] if too_large else None)


async def _send_http_exception(
    error: HTTPException, request: Request, scope: Scope, send: Send
) -> None:
    method, path = scope["method"], scope["path"]
    if (method, path) == ("OPTIONS", "*"):  # the server as a whole: RFC 9110, section 9.3.7
        await _send_allowed(send, [(b"allow", b"GET, HEAD, OPTIONS, POST")])
        return
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        await send_error(send, NotFound(f"there is nothing at {path}; see /"), request.id)
        return
    allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
    allow: Headers = [(b"allow", f"{allowed}, OPTIONS".encode())]
    if method == "OPTIONS":
        await _send_allowed(send, allow)
        return
    refusal = MethodNotAllowed(f"{path} does not take {method}, only {allowed}")
    await send_error(send, refusal, request.id, allow)


async def _send_allowed(send: Send, allow: Headers) -> None:
    await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": allow})
    await send({"type": "http.response.body", "body": b""})
