"""TLS: who is spoken to, and certificates that change while requests run."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from signal import SIGHUP
from typing import Any

import grpc
import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

import models
from certificates import EXPIRES, TlsFolder
from e2e.client import infer_body, request_bytes, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.grpc_client import CHECK, Client, Refused

ONE = infer_body(tensor("x", [1, 1], [1]))


@pytest.fixture
def tls(tmp_path: Path, models_dir: Path) -> TlsFolder:
    models.identity_model(models_dir / "echo.onnx")
    return TlsFolder.make(tmp_path / "tls")


def ask(
    daemon: Daemon, context: ssl.SSLContext, path: str = "/health/live", body: bytes | None = None
) -> bytes:
    connection = http.client.HTTPSConnection(*daemon.address, context=context, timeout=20)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        return answer
    finally:
        connection.close()


def shown(daemon: Daemon) -> str:
    return ssl.get_server_certificate(daemon.address, timeout=20)


def trusting(tls: TlsFolder) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=tls.authority)


def warnings(daemon: Daemon) -> list[dict[str, Any]]:
    return [line for line in daemon.log() if line["level"] not in ("debug", "info")]


def test_requests_are_answered_over_tls(serve: Serve, tls: TlsFolder) -> None:
    daemon = serve(**tls.environment())
    trusted = trusting(tls)
    answer = json.loads(ask(daemon, trusted, "/v1/models/echo/infer", ONE))
    assert answer["outputs"][0]["data"] == [1.0]
    large = infer_body(tensor("x", [1, 200_000], [0.5] * 200_000))
    answer = json.loads(ask(daemon, trusted, "/v1/models/echo/infer", large))
    assert answer["outputs"][0]["data"] == [0.5] * 200_000
    served = [line for line in daemon.log() if line["event"] == "serving"]
    assert served[0]["http"].startswith("https://127.0.0.1:")
    metrics = ask(daemon, trusted, "/metrics").decode()
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }
    assert samples["snoozeml_tls_certificate_expiry_timestamp_seconds"] == EXPIRES.timestamp()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(serve: Serve, tls: TlsFolder, version: ssl.TLSVersion) -> None:
    context = trusting(tls)
    context.minimum_version = context.maximum_version = version
    ask(serve(**tls.environment()), context)


def test_older_versions_and_plain_http_get_nowhere_and_leave_no_traceback(
    serve: Serve, tls: TlsFolder
) -> None:
    daemon = serve(**tls.environment())
    old = trusting(tls)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        ask(daemon, old)
    with socket.create_connection(daemon.address, timeout=20) as plain:
        plain.sendall(request_bytes("GET", "/health/live"))
        with contextlib.suppress(ConnectionResetError):  # or it is told, in TLS, and hung up on
            assert b"200" not in plain.recv(100)
    with socket.create_connection(daemon.address, timeout=20):
        pass
    ask(daemon, trusting(tls))
    assert warnings(daemon) == []
    assert not [line for line in daemon.stderr if "Traceback" in line]


def test_clients_without_a_certificate_are_turned_away_where_one_is_wanted(
    serve: Serve, tls: TlsFolder, tmp_path: Path
) -> None:
    clients = trustme.CA()
    roots = tmp_path / "clients.pem"
    clients.cert_pem.write_to_path(roots)
    daemon = serve(f'[server]\ntls_client_ca = "{roots}"\n', **tls.environment())

    def with_certificate_of(authority: trustme.CA) -> ssl.SSLContext:
        context = trusting(tls)
        authority.issue_cert("client@snooze.test").configure_cert(context)
        return context

    ask(daemon, with_certificate_of(clients))
    for stranger in (trusting(tls), with_certificate_of(trustme.CA())):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(daemon, stranger)
    # Other roots count from the next connection on.
    others = trustme.CA()
    others.cert_pem.write_to_path(roots)
    ask(daemon, with_certificate_of(others))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(daemon, with_certificate_of(clients))


def test_the_commands_reach_a_daemon_that_asks_for_a_certificate(
    serve: Serve, tls: TlsFolder, tmp_path: Path
) -> None:
    clients = trustme.CA()
    roots, mine, strangers = (tmp_path / f"{name}.pem" for name in ("roots", "mine", "strangers"))
    clients.cert_pem.write_to_path(roots)
    pair = clients.issue_cert("client@snooze.test")
    pair.cert_chain_pems[0].write_to_path(mine)
    pair.private_key_pem.write_to_path(tmp_path / "mine.key")
    trustme.CA().issue_cert("x@snooze.test").private_key_and_cert_chain_pem.write_to_path(strangers)
    daemon = serve(f'[server]\ntls_client_ca = "{roots}"\n', **tls.environment())

    def status(**files: Path | str) -> subprocess.CompletedProcess[str]:
        options = {f"SNOOZE_{name}": str(path) for name, path in files.items()}
        url = f"https://{daemon.ready['http']}"
        return subprocess.run(
            [sys.executable, "-m", "snoozeml", "status", "--endpoint", url],
            env={**os.environ, **options}, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip

    assert "--ca-cert" in status().stderr
    assert "broke off" in (told := status(CA_CERT=tls.authority).stderr)
    assert "a certificate (tls_client_ca)? --client-cert gives one" in told
    told = status(CA_CERT=tls.authority, CLIENT_CERT=strangers).stderr
    assert f"lead to {strangers}" in told
    shown = status(CA_CERT=tls.authority, CLIENT_CERT=mine, CLIENT_KEY=tmp_path / "mine.key")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "echo" in shown.stdout


def test_certificates_are_renewed_under_load_and_no_request_fails(
    serve: Serve, tls: TlsFolder
) -> None:
    """Old connections go on, new ones see the new certificate; every answer is right."""
    daemon = serve(**tls.environment())
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def kept_open(stop: asyncio.Event) -> int:
        """Ask until told to stop, and once at least."""
        reader, writer = await asyncio.open_connection(*daemon.address, ssl=context)
        answered = 0
        while not (answered and stop.is_set()):
            writer.write(request_bytes("POST", "/v1/models/echo/infer", ONE))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)
            answered += 1
        writer.close()
        await writer.wait_closed()
        return answered

    async def opened_anew(stop: asyncio.Event) -> int:
        once = asyncio.Event()
        once.set()
        answered = 0
        while not stop.is_set():
            answered += await kept_open(once)
        return answered

    async def renew(stop: asyncio.Event) -> list[str]:
        seen = []
        for _ in range(8):
            await asyncio.to_thread(tls.renew)
            seen.append(await asyncio.to_thread(shown, daemon))
            assert tls.certificate.read_text().startswith(seen[-1].strip())
        stop.set()
        return seen

    async def main() -> tuple[list[str], list[int]]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            load = [tasks.create_task(kept_open(stop)) for _ in range(4)]
            load += [tasks.create_task(opened_anew(stop)) for _ in range(4)]
            renewing = tasks.create_task(renew(stop))
        return renewing.result(), [task.result() for task in load]

    first = shown(daemon)
    seen, answered = asyncio.run(main())
    assert len({first, *seen}) == 9
    assert min(answered) > 0
    ask(daemon, trusting(tls))


def check_over_grpc(daemon: Daemon, tls: TlsFolder) -> bool:
    """Ask anew, trusting the authority as it is now; raises grpc.RpcError."""
    trust = grpc.ssl_channel_credentials(tls.authority.read_bytes())
    options = [("grpc.use_local_subchannel_pool", 1)]  # or an old connection would be used again
    with grpc.secure_channel(daemon.ready["grpc"], trust, options) as channel:
        return bool(channel.unary_unary(CHECK)(b"", timeout=10))


def test_grpc_shows_the_same_certificate_and_renews_it_with_its_files(
    serve: Serve, tls: TlsFolder
) -> None:
    daemon = serve(**tls.environment())
    assert check_over_grpc(daemon, tls)
    with Client(daemon.ready["grpc"]) as plain:
        outcome = plain.call(CHECK, b"", timeout_s=5)
        assert isinstance(outcome, Refused)
    tls.renew()
    assert check_over_grpc(daemon, tls)
    good = tls.key.read_bytes()
    tls.key.write_text("nonsense")
    assert check_over_grpc(daemon, tls), "the old one stays"
    tls.key.write_bytes(good)
    assert check_over_grpc(daemon, tls)


def test_the_library_for_grpc_that_has_no_tls_is_not_taken_with_it(
    models_dir: Path, tls: TlsFolder
) -> None:
    command = [sys.executable, "-m", "snoozeml", "serve", "--port", "0", "--grpc-port", "0"]
    files = ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
    result = subprocess.run(
        [*command, "--models-dir", str(models_dir), *files],
        env={**os.environ, "SNOOZE_GRPC_LIBRARY": "native"},
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "grpc_library: native has no TLS" in result.stderr


def test_a_broken_file_is_refused_and_a_reload_says_why(serve: Serve, tls: TlsFolder) -> None:
    daemon = serve(**tls.environment())
    old, trusted = shown(daemon), trusting(tls)
    tls.certificate.write_text("nonsense")
    daemon.send_signal(SIGHUP)
    eventually(lambda: len(warnings(daemon)) == 2, "the daemon tells")
    stays, nothing_changed = (line["event"] for line in warnings(daemon))
    assert "the certificate stays as it was" in stays
    assert "nothing was changed" in nothing_changed
    assert "tls.crt: there is no -----BEGIN CERTIFICATE-----" in nothing_changed
    assert shown(daemon) == old
    ask(daemon, trusted)
    tls.renew()
    assert shown(daemon) != old
    ask(daemon, trusting(tls))


def test_stopping_does_not_wait_for_clients_that_say_no_goodbye(
    serve: Serve, tls: TlsFolder
) -> None:
    daemon = serve(**tls.environment())
    with socket.create_connection(daemon.address) as raw:
        context = trusting(tls)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(request_bytes("GET", "/health/live"))
            assert connection.recv(100)
            assert daemon.stop() == 0
