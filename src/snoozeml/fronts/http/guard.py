"""Routes that ask who comes before they look at what for."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from snoozeml.core.names import as_model_id
from snoozeml.serving.auth import CREDENTIAL_HEADERS, Action, Authoriser, Principal

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

_MODEL: Final = ("model_id", "name")
"""What the part of a path is called that names a model."""


class Guard:
    """Makes the routes that are not in a hurry; whoever may not do it never reaches a handler."""

    def __init__(self, authoriser: Authoriser) -> None:
        self._authoriser = authoriser

    def get(self, path: str, action: Action, handle: Handler) -> Route:
        return self._route(path, action, handle, "GET")

    def post(self, path: str, action: Action, handle: Handler) -> Route:
        return self._route(path, action, handle, "POST")

    def both(self, path: str, action: Action, handle: Handler) -> Route:
        return self._route(path, action, handle, "GET", "POST")

    def _route(self, path: str, action: Action, handle: Handler, *methods: str) -> Route:
        async def guarded(request: Request) -> Response:
            named = [request.path_params[key] for key in _MODEL if key in request.path_params]
            model_id = as_model_id(named[0]) if named else None
            found = [header for header in request.headers.raw if header[0] in CREDENTIAL_HEADERS]
            request.state.principal = self._authoriser.check(found, action, model_id)
            return await handle(request)

        return Route(path, guarded, methods=methods)


def principal_of(request: Request) -> Principal:
    """Who has come in, on a guarded route."""
    principal: Principal = request.state.principal
    return principal
