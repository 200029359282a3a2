"""Whoever sends a body that is refused reads why, however much of it is still to come."""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pytest

import models
from certificates import TlsFolder
from e2e.client import Reply, request_bytes
from e2e.conftest import Serve
from e2e.credentials import bearer
from e2e.daemon import path

KEY: Final = "key-of-somebody-who-may-do-everything"
TARGETS: Final = (path("echo", "infer"), "/v2/models/echo/infer", "/v1/models/upload")
FORM: Final = {"Content-Type": "multipart/form-data; boundary=b"}
BODY: Final = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="m.onnx"\r\n\r\n'
    + bytes(10 << 20)
    + b"\r\n--b--\r\n"
)
ANNOUNCED: Final = {"Content-Length": str(len(BODY))}, BODY
CHUNKED: Final = {"Transfer-Encoding": "chunked"}, b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
TIMES: Final = 10

Send: TypeAlias = Callable[[str, Mapping[str, str], bytes], Reply]
"""Sends the whole of a POST before it reads anything."""


@pytest.fixture(params=["plain", "TLS"])
def send(request: pytest.FixtureRequest, serve: Serve, models_dir: Path, tmp_path: Path) -> Send:
    models.identity_model(models_dir / "echo.onnx")
    tls = TlsFolder.make(tmp_path / "tls") if request.param == "TLS" else None
    context = tls and ssl.create_default_context(cafile=tls.authority)
    daemon = serve(
        "[server]\nmax_request_bytes = 100_000\nmax_upload_bytes = 100_000\n",
        SNOOZE_API_KEY=KEY,
        **(tls.environment() if tls else {}),
    )

    def send(target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        with daemon.connect(context) as connection:
            connection.send(request_bytes("POST", target, None, headers) + body)
            return connection.reply()

    return send


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sent", [ANNOUNCED, CHUNKED], ids=["announced", "chunked"])
def test_without_credentials(send: Send, target: str, sent: tuple[dict[str, str], bytes]) -> None:
    headers, body = sent
    for _ in range(TIMES):
        assert send(target, headers, body).status == 401


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sent", [ANNOUNCED, CHUNKED], ids=["announced", "chunked"])
def test_too_large(send: Send, target: str, sent: tuple[dict[str, str], bytes]) -> None:
    headers, body = sent
    media_type = FORM if target.endswith("upload") else {}
    for _ in range(TIMES):
        reply = send(target, headers | media_type | bearer(KEY), body)
        assert (reply.status, reply.headers["connection"]) == (413, "close"), reply


def test_what_is_no_request_or_no_end_of_one(send: Send) -> None:
    chunked = {"Transfer-Encoding": "chunked"}
    endless = b"a: b\r\n" * (2 << 20)
    for _ in range(TIMES):
        assert send("/", {"X": "y" * (10 << 20)}, b"").status == 431
        assert send("/nowhere", chunked, b"no size\r\n" + BODY).status == 400
        assert send(TARGETS[0], chunked | bearer(KEY), b"0\r\n" + endless).status == 431


def test_a_body_without_end_is_cut_off(serve: Serve) -> None:
    daemon = serve()
    with daemon.connect() as connection:
        connection.send(b"nonsense\r\n\r\n")
        with pytest.raises(ConnectionError):
            connection.send(bytes(400 << 20))
    assert daemon.request("GET", "/health/live").status == 200


def test_a_connection_that_was_refused_is_closed_when_the_client_falls_silent(
    serve: Serve, tmp_path: Path
) -> None:
    tls = TlsFolder.make(tmp_path / "tls")
    daemon = serve(**tls.environment())
    with daemon.connect(ssl.create_default_context(cafile=tls.authority)) as connection:
        connection.send(b"nonsense\r\n\r\n")
        assert connection.reply().status == 400
        assert connection.ended()
