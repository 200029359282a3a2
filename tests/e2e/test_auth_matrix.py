"""Every route, with everything that somebody might show: who comes in, and how far."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from starlette.routing import Route

import models
from e2e import client
from e2e.credentials import ENVIRONMENT, SETTINGS, bearer, shown, token
from e2e.daemon import Daemon
from e2e.grpc_client import CHECK, Client, Reply, refused, tensor
from snoozeml.config.auth_schema import AuthConfig
from snoozeml.core.roles import Role
from snoozeml.fronts import http as http_front
from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.http.app import ColdRoutes
from snoozeml.fronts.http.guard import Guard
from snoozeml.fronts.http.upload import UploadRoutes
from snoozeml.fronts.http.v1_routes import V1Routes
from snoozeml.fronts.http.v2_routes import V2Routes
from snoozeml.fronts.limits import ClientLimits
from snoozeml.serving.auth import Authoriser
from snoozeml.wire.proto import oip_pb2 as v2
from snoozeml.wire.proto import snoozeml_pb2 as v1
from snoozeml.wire.proto.health_pb2 import HealthCheckRequest

BODY: Final = client.infer_body(client.tensor("x", [1, 1], [1], datatype="FP32"))


class Row(NamedTuple):
    """One thing to ask for.

    Attributes:
        method: of HTTP; gRPC has one for all.
        place: the path, of HTTP or of gRPC.
        ask: asks with these headers; returns the status as HTTP has it.
        needs: the least role that may; None: anybody.
        allowed: the status when it is allowed.
    """

    method: str
    place: str
    name: str
    ask: Callable[[Daemon, Mapping[str, str]], int]
    needs: Role | None
    allowed: int


def http(method: str, path: str, needs: Role | None, allowed: int = 200) -> Row:
    body = BODY if method == "POST" else None

    def ask(daemon: Daemon, headers: Mapping[str, str]) -> int:
        reply = daemon.request(method, path, body, headers)
        if reply.status == 401:
            assert reply.headers["www-authenticate"].startswith("Bearer")
        return reply.status

    return Row(method, path, f"{method} {path}", ask, needs, allowed)


def rpc(method: str, message: Message, needs: Role | None, allowed: int = 200) -> Row:
    body = message.SerializeToString()

    def ask(daemon: Daemon, headers: Mapping[str, str]) -> int:
        metadata = [(name.lower(), value) for name, value in headers.items()]
        with Client(daemon.ready["grpc"]) as client:
            if method in STREAMS:
                calling = client.channel.stream_stream(method)(iter([body]), metadata=metadata)
                try:
                    next(calling)
                except grpc.RpcError as error:
                    return STATUS[refused(error).code]
                calling.cancel()  # some never end by themselves
                return 200
            outcome = client.call(method, body, metadata=metadata)
            return 200 if isinstance(outcome, Reply) else STATUS[outcome.code]

    name = f"{method.rpartition('/')[2]} {str(message).strip()}"
    return Row("POST", method, name, ask, needs, allowed)


STATUS: Final = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}
NOWHERE: Final = (
    *(f"/v2/models/nothing/{what}" for what in ("generate", "generate_stream", "infer_stream")),
    *("/v2/models/nothing/trace/setting", "/v2/trace/setting", "/v2/logging"),
    *("/v2/systemsharedmemory/status", "/v2/cudasharedmemory/region/x/register"),
)
HTTP: Final = (
    http("GET", "/", None),
    http("GET", "/health/live", None),
    http("GET", "/health/ready", None),
    http("GET", "/metrics", Role.ADMIN),
    http("GET", "/v1/models", Role.READONLY),
    http("HEAD", "/v1/models", Role.READONLY),
    http("GET", "/v1/models/echo", Role.READONLY),
    http("GET", "/v1/models/nothing", Role.READONLY, 404),
    http("POST", "/v1/models/echo/infer", Role.INFERENCE),
    http("POST", "/v1/models/nothing/infer", Role.INFERENCE, 404),
    http("POST", "/v1/models/echo/load", Role.ADMIN),
    http("POST", "/v1/models/nothing/load", Role.ADMIN, 404),
    http("POST", "/v1/models/echo/pin", Role.ADMIN),
    http("POST", "/v1/models/echo/unpin", Role.ADMIN),
    http("POST", "/v1/models/nothing/unload", Role.ADMIN, 404),
    http("POST", "/v1/models/refresh", Role.ADMIN),
    http("POST", "/v1/models/upload", Role.ADMIN, 415),
    http("GET", "/v2", None),
    http("GET", "/v2/health/live", None),
    http("GET", "/v2/health/ready", None),
    http("GET", "/v2/models/stats", Role.READONLY),
    http("GET", "/v2/models/echo", Role.READONLY),
    http("GET", "/v2/models/echo/versions/1", Role.READONLY),
    http("GET", "/v2/models/nothing", Role.READONLY, 404),
    http("GET", "/v2/models/echo/config", Role.READONLY),
    http("GET", "/v2/models/echo/versions/1/config", Role.READONLY),
    http("GET", "/v2/models/echo/stats", Role.READONLY),
    http("GET", "/v2/models/echo/versions/1/stats", Role.READONLY),
    http("GET", "/v2/models/nothing/ready", Role.READONLY, 404),
    http("GET", "/v2/models/echo/versions/1/ready", Role.READONLY),
    http("POST", "/v2/models/echo/infer", Role.INFERENCE),
    http("POST", "/v2/models/echo/versions/1/infer", Role.INFERENCE),
    http("POST", "/v2/models/nothing/infer", Role.INFERENCE, 404),
    http("POST", "/v2/repository/index", Role.READONLY),
    http("POST", "/v2/repository/models/echo/load", Role.ADMIN),
    http("POST", "/v2/repository/models/nothing/unload", Role.ADMIN, 404),
    http("POST", "/v2/repository/other/index", Role.READONLY, 501),
    http("POST", "/v2/repository/other/models/echo/load", Role.ADMIN, 501),
    http("POST", "/v2/repository/other/models/echo/unload", Role.ADMIN, 501),
    # What is not there is not there for anybody, and says nothing of models.
    *(http(method, path, None, 501) for path in NOWHERE for method in ("GET", "POST")),
    http("GET", "/nowhere", None, 404),
    http("DELETE", "/v1/models/echo", None, 405),
    http("OPTIONS", "/v1/models/nothing", None, 204),
)
V1: Final = "/snoozeml.v1.InferenceService/"
V2: Final = "/inference.GRPCInferenceService/"
WATCH: Final = "/grpc.health.v1.Health/Watch"
REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
STREAMS: Final = (V1 + "InferStream", V2 + "ModelStreamInfer", WATCH, REFLECTION)
ONE: Final = [tensor("x", np.ones((1, 1)))]
V2_ONE: Final = [v2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 1])]
RAW: Final = [b"\0\0\0\0"]
NOT_SERVED: Final = (
    *("TraceSetting", "LogSettings"),
    *(f"SystemSharedMemory{verb}" for verb in ("Status", "Register", "Unregister")),
    *(f"CudaSharedMemory{verb}" for verb in ("Status", "Register", "Unregister")),
)
GRPC: Final = (
    rpc(CHECK, HealthCheckRequest(), None),
    rpc(WATCH, HealthCheckRequest(), None),
    rpc(REFLECTION, ServerReflectionRequest(list_services=""), None),
    rpc(V1 + "Infer", v1.ModelInferRequest(model_id="echo", inputs=ONE), Role.INFERENCE),
    rpc(V1 + "Infer", v1.ModelInferRequest(model_id="nothing"), Role.INFERENCE, 404),
    rpc(V1 + "InferStream", v1.ModelInferRequest(model_id="echo", inputs=ONE), Role.INFERENCE),
    rpc(
        V2 + "ModelInfer",
        v2.ModelInferRequest(model_name="echo", inputs=V2_ONE, raw_input_contents=RAW),
        Role.INFERENCE,
    ),
    rpc(V2 + "ModelInfer", v2.ModelInferRequest(model_name="nothing"), Role.INFERENCE, 404),
    rpc(V2 + "ModelStreamInfer", v2.ModelInferRequest(model_name="echo"), Role.INFERENCE),
    rpc(V2 + "ServerLive", v2.ServerLiveRequest(), None),
    rpc(V2 + "ServerReady", v2.ServerReadyRequest(), None),
    rpc(V2 + "ServerMetadata", v2.ServerMetadataRequest(), None),
    rpc(V2 + "ModelReady", v2.ModelReadyRequest(name="echo"), Role.READONLY),
    rpc(V2 + "ModelMetadata", v2.ModelMetadataRequest(name="echo"), Role.READONLY),
    rpc(V2 + "ModelMetadata", v2.ModelMetadataRequest(name="nothing"), Role.READONLY, 404),
    rpc(V2 + "ModelConfig", v2.ModelConfigRequest(name="echo"), Role.READONLY),
    rpc(V2 + "ModelStatistics", v2.ModelStatisticsRequest(), Role.READONLY),
    rpc(V2 + "RepositoryIndex", v2.RepositoryIndexRequest(), Role.READONLY),
    rpc(
        V2 + "RepositoryModelLoad",
        v2.RepositoryModelLoadRequest(model_name="echo"),
        Role.ADMIN,
    ),
    rpc(
        V2 + "RepositoryModelUnload",
        v2.RepositoryModelUnloadRequest(model_name="nothing"),
        Role.ADMIN,
        404,
    ),
    *(rpc(V2 + name, v2.ServerLiveRequest(), None, 501) for name in NOT_SERVED),
)
WHO: Final = tuple(shown())
IN_METADATA: Final = tuple(
    who for who, it in shown().items() if all(value.isascii() for value in it.headers.values())
)
"""Those whose credentials gRPC can carry: its metadata are text in ASCII."""


def started(folder: Path, cache_dir: Path, library: str) -> Daemon:
    models.identity_model(folder / "echo.onnx")
    (folder / "models.toml").write_text(SETTINGS)
    return Daemon(folder, cache_dir, env=ENVIRONMENT | {"SNOOZE_GRPC_LIBRARY": library})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Daemon]:
    with started(tmp_path_factory.mktemp("models"), cache_dir, "auto") as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


@pytest.fixture(scope="module", params=["native", "grpcio"])
def guarded_grpc(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache_dir: Path
) -> Iterator[Daemon]:
    with started(tmp_path_factory.mktemp("models"), cache_dir, request.param) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


def test_every_route_of_http_is_in_the_table() -> None:
    guard, unused = Guard(Authoriser(AuthConfig())), Mock()
    groups = (
        V1Routes(guard, unused, unused, unused),
        UploadRoutes(guard, unused),
        V2Routes(guard, unused, unused),
    )
    assert {type(group) for group in groups} == _groups_of_routes()
    routes = [
        (method, route)
        for group in groups
        for route in group.routes(unused)
        for method in (route.methods or set()) - {"HEAD"}
    ]
    asked = [_number(routes, row) for row in HTTP]
    missing = [number for number in range(len(routes)) if number not in asked]
    assert [(routes[number][0], routes[number][1].path) for number in missing] == []


def _number(routes: list[tuple[str, Route]], row: Row) -> int | None:
    """Which route answers a row: the first that fits."""
    fitting = (
        number
        for number, (method, route) in enumerate(routes)
        if method == row.method and route.path_regex.match(row.place)
    )
    return next(fitting, None)


def _groups_of_routes() -> set[type]:
    """Every class of the front that has routes."""
    modules = [
        importlib.import_module(f"{http_front.__name__}.{module.name}")
        for module in pkgutil.iter_modules(http_front.__path__)
    ]
    return {
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and hasattr(found, "routes") and found is not ColdRoutes
    }


def test_every_method_of_grpc_is_in_the_table() -> None:
    app = GrpcApp.over(Mock(), Mock(), Mock(), Authoriser(AuthConfig()), ClientLimits())
    assert {*app.unary, *app.streaming} <= {row.place for row in GRPC}
    assert {*app.streaming} <= {*STREAMS}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("row", HTTP, ids=[row.name for row in HTTP])
def test_over_http_the_status_is_what_the_table_says(guarded: Daemon, row: Row, who: str) -> None:
    credentials = shown()[who]
    assert row.ask(guarded, credentials.headers) == _expected(row, credentials.role)


@pytest.mark.parametrize("who", IN_METADATA)
@pytest.mark.parametrize("row", GRPC, ids=[row.name for row in GRPC])
def test_over_grpc_it_is_the_same(guarded_grpc: Daemon, row: Row, who: str) -> None:
    credentials = shown()[who]
    assert row.ask(guarded_grpc, credentials.headers) == _expected(row, credentials.role)


def _expected(row: Row, role: Role | None) -> int:
    if row.needs is None:
        return row.allowed
    if role is None:
        return 401
    return row.allowed if role >= row.needs else 403


def test_a_token_without_a_role_that_we_know_is_known_and_may_nothing(guarded: Daemon) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"role": None},
        {"role": "cook"},
        {"role": 3},
        {"role": None, "roles": []},
    )
    for claims in wrong:
        reply = guarded.request("GET", "/v1/models", headers=bearer(token(**claims)))
        assert reply.status == 403
        assert reply.json()["code"] == "permission_denied"


def test_two_headers_of_one_name_that_differ_are_refused(guarded: Daemon) -> None:
    admin = ENVIRONMENT["RULES_KEY"]
    with guarded.connect() as connection:
        connection.send(
            f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {admin}\r\n"
            "Authorization: Bearer other\r\n\r\n".encode()
        )
        assert connection.reply().status == 401


def test_no_log_and_no_metric_holds_a_secret(guarded: Daemon) -> None:
    """After everything above, with the log at its usual level."""
    admin = bearer(ENVIRONMENT["RULES_KEY"])
    for path in ("/metrics", "/v1/models", "/v1/models/echo", "/"):
        body = guarded.request("GET", path, headers=admin).body.decode()
        assert not [secret for secret in ENVIRONMENT.values() if secret in body]
    log = "\n".join(guarded.stderr)
    assert not [secret for secret in ENVIRONMENT.values() if secret in log]
