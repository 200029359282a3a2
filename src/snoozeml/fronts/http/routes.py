"""The routes that are not in a hurry: index, health, metrics, models and their control."""

import unicodedata
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from snoozeml import __version__
from snoozeml.errors import InvalidInput
from snoozeml.serving.auth import CREDENTIAL_HEADERS, Action, Authoriser, Principal
from snoozeml.serving.control import Changed, Control
from snoozeml.serving.inference import Serving
from snoozeml.telemetry.metrics import CONTENT_TYPE, Exposition

_ENDPOINTS = {
    "live": "/health/live",
    "ready": "/health/ready",
    "metrics": "/metrics",
    "models": "/v1/models",
    "model": "/v1/models/{id}",
    "infer": "/v1/models/{id}/infer",
    "load": "/v1/models/{id}/load",
    "unload": "/v1/models/{id}/unload",
    "pin": "/v1/models/{id}/pin",
    "unpin": "/v1/models/{id}/unpin",
    "refresh": "/v1/models/refresh",
}


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class ColdRoutes:
    """The handlers behind `router`."""

    def __init__(
        self, serving: Serving, control: Control, authoriser: Authoriser, exposition: Exposition
    ) -> None:
        self._serving = serving
        self._authoriser = authoriser
        self._control = control
        self._exposition = exposition

    def router(self, infer: ASGIApp) -> Router:
        """All routes.

        Args:
            infer: the application that answers the infer route; listed so that its path is known
                and other methods than POST are refused.
        """
        control, route = self._control, self._route
        return Router(
            [
                route("GET", "/", Action.PUBLIC, self._index),
                route("GET", "/health/live", Action.PUBLIC, self._live),
                route("GET", "/health/ready", Action.PUBLIC, self._ready),
                route("GET", "/metrics", Action.METRICS, self._metrics),
                route("GET", "/v1/models", Action.READONLY, self._models),
                route("POST", "/v1/models/refresh", Action.ADMIN, self._refresh),
                route("GET", "/v1/models/{model_id}", Action.READONLY, self._model),
                Route("/v1/models/{model_id}/infer", infer, methods=["POST"]),
                route("POST", "/v1/models/{model_id}/load", Action.ADMIN, self._load),
                self._change("unload", control.unload),
                self._change("pin", control.pin),
                self._change("unpin", control.unpin),
            ],
            redirect_slashes=False,
        )

    def _route(self, method: str, path: str, action: Action, handle: Handler) -> Route:
        """A route that asks who comes before it looks at what for."""

        async def endpoint(request: Request) -> Response:
            model_id = _model_id(request) if "model_id" in request.path_params else None
            credentials = [
                header for header in request.headers.raw if header[0] in CREDENTIAL_HEADERS
            ]
            request.state.principal = self._authoriser.check(credentials, action, model_id)
            return await handle(request)

        return Route(path, endpoint, methods=[method])

    def _change(self, verb: str, perform: Callable[[str], Awaitable[Changed]]) -> Route:
        async def handle(request: Request) -> Response:
            return _json(await perform(_model_id(request)))

        return self._route("POST", f"/v1/models/{{model_id}}/{verb}", Action.ADMIN, handle)

    async def _index(self, request: Request) -> Response:
        return _json({"name": "snoozeml", "version": __version__, "endpoints": _ENDPOINTS})

    async def _live(self, request: Request) -> Response:
        return _json({"status": "live"})

    async def _ready(self, request: Request) -> Response:
        # A sleeping or loading model does not make the server unready: it takes requests for it.
        if self._serving.draining:
            return _json({"status": "draining"}, 503)
        return _json({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        return Response(self._exposition.render(), headers={"content-type": CONTENT_TYPE})

    async def _models(self, request: Request) -> Response:
        principal: Principal = request.state.principal
        return _json([model for model in self._control.models() if principal.may_use(model.id)])

    async def _model(self, request: Request) -> Response:
        return _json(self._control.model(_model_id(request)))

    async def _load(self, request: Request) -> Response:
        wait = request.query_params.get("wait", "true")
        if wait not in ("true", "false"):
            raise InvalidInput(f"wait must be true or false, not {wait!r:.60}")
        return _json(await self._control.load(_model_id(request), wait=wait == "true"))

    async def _refresh(self, request: Request) -> Response:
        return _json({"models": await self._control.refresh()})


def model_id_in(segment: str) -> str:
    """The id that a decoded path segment names, in whatever form its characters were typed."""
    return segment if segment.isascii() else unicodedata.normalize("NFC", segment)


def _model_id(request: Request) -> str:
    return model_id_in(request.path_params["model_id"])


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
