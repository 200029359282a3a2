"""gRPC over TLS: everything that is served without it, for whom it is meant."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

import models
from certificates import TlsFolder
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.grpc_client import (
    CHECK,
    INFER,
    INFER_STREAM,
    MODEL_INFER,
    MODEL_STREAM_INFER,
    WATCH,
    Client,
    Refused,
    Reply,
    request,
    tensor,
)
from snoozeml.wire.proto.oip_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
)

ONE = np.ones((1, 1), np.float32)
V1 = request("echo", tensor("x", ONE))


@pytest.fixture
def tls(tmp_path: Path, models_dir: Path) -> TlsFolder:
    models.identity_model(models_dir / "echo.onnx")
    return TlsFolder.make(tmp_path / "tls")


def trusting(daemon: Daemon, tls: TlsFolder, identity: trustme.LeafCert | None = None) -> Client:
    """A client that trusts the authority as it is now, on a connection of its own."""
    key = identity.private_key_pem.bytes() if identity is not None else None
    chain = identity.cert_chain_pems[0].bytes() if identity is not None else None
    credentials = grpc.ssl_channel_credentials(tls.authority.read_bytes(), key, chain)
    return Client(daemon.ready["grpc"], credentials)


def is_served(client: Client) -> bool:
    with client:
        outcome = client.call(CHECK, b"", timeout_s=10)
    if isinstance(outcome, Refused):
        assert outcome.code is grpc.StatusCode.UNAVAILABLE
    return isinstance(outcome, Reply)


def oip() -> bytes:
    message = ModelInferRequest(model_name="echo", raw_input_contents=[ONE.tobytes()])
    message.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    return bytes(message.SerializeToString())


def test_everything_is_served_over_tls(serve: Serve, tls: TlsFolder) -> None:
    with trusting(serve(**tls.environment()), tls) as client:
        assert client.infer("echo", tensor("x", ONE))["y"] == ONE
        reply = client.call(MODEL_INFER, oip())
        assert isinstance(reply, Reply)
        assert ModelInferResponse.FromString(reply.body).raw_output_contents == [ONE.tobytes()]
        assert len(list(client.stream(INFER_STREAM, [V1] * 100))) == 100
        answers = client.stream(MODEL_STREAM_INFER, [oip()] * 100)
        assert [ModelStreamInferResponse.FromString(it).error_message for it in answers] == [
            ""
        ] * 100
        assert next(client.stream(WATCH, [b""])) == b"\x08\x01"
        assert (
            "grpc.health.v1.Health"
            in ProtoReflectionDescriptorDatabase(client.channel).get_services()
        )


def test_messages_are_limited_over_tls_as_well(serve: Serve, tls: TlsFolder) -> None:
    daemon = serve("[server]\nmax_request_bytes = 4_000_000\n", **tls.environment())
    with trusting(daemon, tls) as client:
        large = np.arange(999_000, dtype=np.float32).reshape(1, -1)
        np.testing.assert_array_equal(client.infer("echo", tensor("x", large))["y"], large)
        failure = client.call(INFER, request("echo", tensor("x", np.zeros((1, 1_000_000)))))
        assert isinstance(failure, Refused)
        assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "4000000" in failure.message


def test_clients_show_a_certificate_where_one_is_wanted(
    serve: Serve, tls: TlsFolder, tmp_path: Path
) -> None:
    clients, others, roots = trustme.CA(), trustme.CA(), tmp_path / "clients.pem"
    clients.cert_pem.write_to_path(roots)
    daemon = serve(f'[server]\ntls_client_ca = "{roots}"\n', **tls.environment())
    known, stranger = (ca.issue_cert("client@snooze.test") for ca in (clients, others))
    assert is_served(trusting(daemon, tls, known))
    assert not is_served(trusting(daemon, tls, stranger))
    assert not is_served(trusting(daemon, tls))
    # Other roots count from the next connection on.
    with trusting(daemon, tls, known) as connected:
        assert isinstance(connected.call(CHECK, b""), Reply)
        others.cert_pem.write_to_path(roots)
        assert is_served(trusting(daemon, tls, stranger))
        assert not is_served(trusting(daemon, tls, known))
        assert isinstance(connected.call(CHECK, b""), Reply)


def test_a_stream_outlives_the_certificate_that_it_was_opened_with(
    serve: Serve, tls: TlsFolder
) -> None:
    daemon = serve(**tls.environment())
    renewed = threading.Event()

    def bodies() -> Iterator[bytes]:
        yield V1
        renewed.wait(20)
        yield V1

    with trusting(daemon, tls) as client:
        answers = client.stream(INFER_STREAM, bodies())
        next(answers)
        old = tls.authority.read_bytes()
        tls.renew()
        assert is_served(trusting(daemon, tls))
        distrusted = Client(daemon.ready["grpc"], grpc.ssl_channel_credentials(old))
        assert not is_served(distrusted)
        renewed.set()
        assert len(list(answers)) == 1


def test_files_that_do_not_work_leave_the_old_certificate(serve: Serve, tls: TlsFolder) -> None:
    daemon = serve(**tls.environment())
    tls.certificate.write_text("nonsense")
    assert is_served(trusting(daemon, tls))
    eventually(
        lambda: [line for line in daemon.log() if "stays as it was" in line["event"]], "it is told"
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(serve: Serve, tls: TlsFolder, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=tls.authority)
    context.minimum_version = context.maximum_version = version
    assert agreed(serve(**tls.environment()), context) == "h2"


def test_older_versions_get_nowhere(serve: Serve, tls: TlsFolder) -> None:
    old = ssl.create_default_context(cafile=tls.authority)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        agreed(serve(**tls.environment()), old)


def agreed(daemon: Daemon, context: ssl.SSLContext) -> str | None:
    """The protocol that both sides want to speak, after a handshake."""
    context.set_alpn_protocols(["h2"])
    host, _, port = daemon.ready["grpc"].rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname=host) as connection,
    ):
        return connection.selected_alpn_protocol()
