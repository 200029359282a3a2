"""The routes that are not in a hurry: index, health, metrics, models and their control."""

import os
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from snoozeml import __version__
from snoozeml.core.names import as_model_id
from snoozeml.errors import InvalidInput
from snoozeml.fronts.http.guard import Guard, principal_of
from snoozeml.fronts.http.presence import while_present
from snoozeml.serving.auth import NOBODY, Action
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
    "upload": "/v1/models/upload",
    "v2": "/v2",
}


class V1Routes:
    """The routes of `/` and `/v1`."""

    def __init__(
        self, guard: Guard, serving: Serving, control: Control, exposition: Exposition
    ) -> None:
        self._guard = guard
        self._serving = serving
        self._control = control
        self._exposition = exposition

    def routes(self, infer: ASGIApp) -> list[Route]:
        control, get, post = self._control, self._guard.get, self._guard.post
        return [
            get("/", Action.PUBLIC, self._index),
            get("/health/live", Action.PUBLIC, self._live),
            get("/health/ready", Action.PUBLIC, self._ready),
            get("/metrics", Action.METRICS, self._metrics),
            get("/v1/models", Action.READONLY, self._models),
            post("/v1/models/refresh", Action.ADMIN, self._refresh),
            get("/v1/models/{model_id}", Action.READONLY, self._model),
            Route("/v1/models/{model_id}/infer", infer, methods=["POST"]),
            post("/v1/models/{model_id}/load", Action.ADMIN, self._load),
            post("/v1/models/{model_id}/pin", Action.ADMIN, self._pin),
            self._change("unload", control.unload),
            self._change("unpin", control.unpin),
        ]

    def _change(self, verb: str, perform: Callable[[str], Awaitable[Changed]]) -> Route:
        async def handle(request: Request) -> Response:
            return _json(await perform(_model_id(request)))

        return self._guard.post(f"/v1/models/{{model_id}}/{verb}", Action.ADMIN, handle)

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
        caller, exposition = principal_of(request), self._exposition
        if caller is NOBODY:
            text = await exposition.render_for_strangers()
        else:
            text = await exposition.render(caller.may_use)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _models(self, request: Request) -> Response:
        caller = principal_of(request)
        answer = _json([model for model in self._control.models() if caller.may_use(model.id)])
        # Who may see the paths of all models may see where they begin.
        return self._naming_folder(answer) if caller.models is None else answer

    async def _model(self, request: Request) -> Response:
        may_see = principal_of(request).may_use
        return _json(self._control.model(_model_id(request), may_see))

    async def _load(self, request: Request) -> Response:
        wait = request.query_params.get("wait", "true")
        if wait not in ("true", "false"):
            raise InvalidInput(f"wait must be true or false, not {wait!r:.60}")
        load = self._control.load(_model_id(request), wait=wait == "true")
        return _json(await while_present(request.scope, load))

    async def _pin(self, request: Request) -> Response:
        return _json(await while_present(request.scope, self._control.pin(_model_id(request))))

    async def _refresh(self, request: Request) -> Response:
        return self._naming_folder(_json(await self._control.refresh()))

    def _naming_folder(self, answer: Response) -> Response:
        answer.headers["x-snooze-models-dir"] = quote(os.fsencode(self._control.models_dir))
        return answer


def _model_id(request: Request) -> str:
    return as_model_id(request.path_params["model_id"])


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
