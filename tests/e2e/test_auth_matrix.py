"""Every route, with everything that somebody might show: who comes in, and how far."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import models
from e2e.client import infer_body, tensor
from e2e.credentials import ENVIRONMENT, SETTINGS, Shown, bearer, shown, token
from e2e.daemon import Daemon
from snoozeml.core.roles import Role

BODY: Final = infer_body(tensor("x", [1, 1], [1]))


class Row(NamedTuple):
    """One thing to ask for.

    Attributes:
        ask: asks with these headers; returns the status as HTTP has it.
        needs: the least role that may; None: anybody.
        allowed: the status when it is allowed.
    """

    name: str
    ask: Callable[[Daemon, Mapping[str, str]], int]
    needs: Role | None
    allowed: int = 200


def http(method: str, path: str, needs: Role | None, allowed: int = 200) -> Row:
    body = BODY if method == "POST" else None

    def ask(daemon: Daemon, headers: Mapping[str, str]) -> int:
        reply = daemon.request(method, path, body, headers)
        if reply.status == 401:
            assert reply.headers["www-authenticate"].startswith("Bearer")
        return reply.status

    return Row(f"{method} {path}", ask, needs, allowed)


ROWS: Final = (
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
    # What is not there is not there for anybody, and says nothing of models.
    http("GET", "/nowhere", None, 404),
    http("DELETE", "/v1/models/echo", None, 405),
    http("OPTIONS", "/v1/models/nothing", None, 204),
)
SHOWN: Final = shown()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("models")
    models.identity_model(folder / "echo.onnx")
    (folder / "models.toml").write_text(SETTINGS)
    with Daemon(folder, cache_dir, env=ENVIRONMENT) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


@pytest.mark.parametrize("who", SHOWN)
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_the_status_is_what_the_table_says(guarded: Daemon, row: Row, who: str) -> None:
    headers, role = SHOWN[who]
    assert row.ask(guarded, headers) == _expected(row, SHOWN[who]), role


def _expected(row: Row, who: Shown) -> int:
    if row.needs is None:
        return row.allowed
    if who.role is None:
        return 401
    return row.allowed if who.role >= row.needs else 403


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
