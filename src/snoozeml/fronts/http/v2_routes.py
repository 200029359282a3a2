"""The routes of `/v2` that are not in a hurry: what the Open Inference Protocol asks about server
and models, and its control of them.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from snoozeml.errors import InvalidInput, NotSupported
from snoozeml.fronts.http.body import BodyReader
from snoozeml.fronts.http.guard import Guard, principal_of
from snoozeml.fronts.http.presence import while_present
from snoozeml.fronts.http.request import SCOPE_KEY
from snoozeml.serving.auth import Action
from snoozeml.serving.oip import OpenInference

_Ask = Callable[[str, str], Awaitable[Response]]

_NOT_READY: Final = 400
"""Not 503: the protocol wants a 4xx, and Triton answers 400."""

_MODEL: Final = "/v2/models/{name}"
_ONE_VERSION: Final = _MODEL + "/versions/{version}"

_NOT_SERVED: Final = {
    "/v2/systemsharedmemory/{rest:path}": "shared memory is not served: send tensors in the body",
    "/v2/cudasharedmemory/{rest:path}": "shared memory is not served: send tensors in the body",
    "/v2/trace/setting": "traces are not served",
    _MODEL + "/trace/setting": "traces are not served",
    "/v2/logging": "the log's settings are those of the configuration file",
    _MODEL + "/generate": "text generation is not served: send tensors to infer",
    _MODEL + "/generate_stream": "text generation is not served: send tensors to infer",
    _MODEL + "/infer_stream": "streams are served by gRPC only",
}


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _LoadRequest(msgspec.Struct):
    parameters: dict[str, Any] | None = None


class V2Routes:
    """The routes of `/v2`."""

    def __init__(self, guard: Guard, server: OpenInference, bodies: BodyReader) -> None:
        self._guard = guard
        self._server = server
        self._bodies = bodies

    def routes(self, infer: ASGIApp) -> list[Route]:
        get = self._guard.get
        return [
            get("/v2", Action.PUBLIC, self._metadata),
            get("/v2/health/live", Action.PUBLIC, self._live),
            get("/v2/health/ready", Action.PUBLIC, self._ready),
            get("/v2/models/stats", Action.READONLY, self._all_statistics),
            *self._routes_of_model("", self._model),
            *self._routes_of_model("/config", self._config),
            *self._routes_of_model("/stats", self._statistics),
            get(_MODEL + "/ready", Action.READONLY, self._model_ready),
            get(_ONE_VERSION + "/ready", Action.READONLY, self._model_ready),
            Route(_MODEL + "/infer", infer, methods=["POST"]),
            Route(_ONE_VERSION + "/infer", infer, methods=["POST"]),
            *self._routes_of_repository("/v2/repository"),
            *self._routes_of_repository("/v2/repository/{repository}"),
            *[self._refusal(path, why) for path, why in _NOT_SERVED.items()],
        ]

    def _routes_of_model(self, rest: str, ask: _Ask) -> list[Route]:
        async def handle(request: Request) -> Response:
            return await ask(*_named(request))

        paths = (_MODEL + rest, _ONE_VERSION + rest)
        return [self._guard.get(path, Action.READONLY, handle) for path in paths]

    def _refusal(self, path: str, why: str) -> Route:
        async def handle(request: Request) -> Response:
            raise NotSupported(why)

        return self._guard.both(path, Action.PUBLIC, handle)

    def _routes_of_repository(self, path: str) -> list[Route]:
        model = path + "/models/{name}"
        return [
            self._guard.post(path + "/index", Action.READONLY, self._index),
            self._guard.post(model + "/load", Action.ADMIN, self._load),
            self._guard.post(model + "/unload", Action.ADMIN, self._unload),
        ]

    async def _metadata(self, request: Request) -> Response:
        return _json(self._server.server())

    async def _live(self, request: Request) -> Response:
        return _json({"live": True})

    async def _ready(self, request: Request) -> Response:
        ready = self._server.is_ready(strict=_is_strict(request))
        return _json({"ready": ready}, 200 if ready else _NOT_READY)

    async def _model_ready(self, request: Request) -> Response:
        name, version = _named(request)
        self._server.actor(name, version)  # a model that is unknown is not merely not ready
        ready = self._server.model_is_ready(name, version, strict=_is_strict(request))
        return _json({"name": name, "ready": ready}, 200 if ready else _NOT_READY)

    async def _model(self, name: str, version: str) -> Response:
        return _json(await self._server.model(name, version))

    async def _config(self, name: str, version: str) -> Response:
        return _json(await self._server.model_config(name, version))

    async def _statistics(self, name: str, version: str) -> Response:
        return _json({"model_stats": self._server.statistics(name, version)})

    async def _all_statistics(self, request: Request) -> Response:
        may_see = principal_of(request).may_use
        found = [model for model in self._server.statistics("", "") if may_see(model.name)]
        return _json({"model_stats": found})

    async def _index(self, request: Request) -> Response:
        _check_repository(request)
        asked = await self._body(request, _IndexRequest)
        may_see, found = principal_of(request).may_use, self._server.index(ready_only=asked.ready)
        return _json([model for model in found if may_see(model.name)])

    async def _load(self, request: Request) -> Response:
        _check_repository(request)
        asked = await self._body(request, _LoadRequest)
        load = self._server.load(request.path_params["name"], asked.parameters or {})
        await while_present(request.scope, load)
        return Response()

    async def _unload(self, request: Request) -> Response:
        _check_repository(request)
        asked = await self._body(request, _LoadRequest)
        await self._server.unload(request.path_params["name"], asked.parameters or {})
        return Response()

    async def _body(self, request: Request, form: type[Any]) -> Any:
        pieces = await self._bodies.read(request.scope[SCOPE_KEY], request.receive)
        try:
            return msgspec.json.decode(b"".join(pieces) or b"{}", type=form)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"the body must be a JSON object or empty: {error}") from None


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")


def _check_repository(request: Request) -> None:
    if "repository" in request.path_params:
        raise NotSupported("there is one repository, and it has no name: leave it out of the path")


def _is_strict(request: Request) -> bool:
    """Whether sleeping models shall count as not ready."""
    given = request.query_params.get("strict", "0")
    if given not in ("0", "1", "false", "true"):
        raise InvalidInput(f"strict must be 1 or 0, not {given!r:.60}")
    return given in ("1", "true")


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
