"""The certificate follows its files, as long as they work."""

import os
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certificates import EXPIRES, TlsFolder
from snoozeml.config.keys import ConfigError
from snoozeml.fronts.expiry import expires_at
from snoozeml.fronts.tls import TlsFiles


@pytest.fixture
def folder(tmp_path: Path) -> TlsFolder:
    return TlsFolder.make(tmp_path)


def shown(files: TlsFiles, folder: TlsFolder) -> str:
    """The certificate that a client gets to see, if it trusts the folder's authority now."""
    trusting = ssl.create_default_context(cafile=folder.authority)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = files.context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return ssl.DER_cert_to_PEM_cert(certificate)


def read(folder: TlsFolder, client_ca: Path | None = None) -> TlsFiles:
    return TlsFiles(folder.certificate, folder.key, client_ca)


def test_each_handshake_shows_what_the_files_hold(folder: TlsFolder) -> None:
    files = read(folder)
    old = shown(files, folder)
    assert shown(files, folder) == old
    folder.renew()
    new = shown(files, folder)
    assert new != old
    assert files.current().certificate.decode().startswith(new.strip())


def test_an_unchanged_file_is_read_once(folder: TlsFolder) -> None:
    files = read(folder)
    first = files.current()
    assert files.current() is first
    folder.renew()
    assert files.current() is not first


def test_a_broken_file_leaves_the_old_certificate_and_is_told_once(
    folder: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    files = read(folder)
    old = shown(files, folder)
    good = folder.key.read_bytes()
    folder.key.write_bytes(good[:-100])
    assert [shown(files, folder) for _ in range(3)] == [old] * 3
    assert caplog.text.count("the certificate stays as it was") == 1
    assert good.decode()[40:80] not in caplog.text
    folder.key.unlink()
    assert shown(files, folder) == old
    assert "tls.key: cannot be read: No such file" in caplog.text
    folder.renew()
    assert shown(files, folder) != old


def test_a_new_certificate_waits_for_its_key(folder: TlsFolder) -> None:
    files = read(folder)
    old_key = folder.key.read_bytes()
    old = shown(files, folder)
    authority = folder.authority.read_bytes()
    folder.renew()
    new_key, new_authority = folder.key.read_bytes(), folder.authority.read_bytes()
    folder.key.write_bytes(old_key)
    folder.authority.write_bytes(authority)
    assert shown(files, folder) == old
    folder.key.write_bytes(new_key)
    folder.authority.write_bytes(new_authority)
    assert shown(files, folder) != old


def test_asking_for_renewal_says_what_is_wrong(folder: TlsFolder) -> None:
    files = read(folder)
    files.renew()
    folder.certificate.write_text("nonsense")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"tls\.crt: there is no -----BEGIN CERTIFICATE-----"):
            files.renew()
    folder.renew()
    files.renew()


def test_only_tls_from_1_2_on_is_spoken(folder: TlsFolder) -> None:
    context = read(folder).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    folder.renew()
    files = read(folder)
    assert files.current().context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_pipe_is_refused_rather_than_waited_for(folder: TlsFolder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pem")
    with pytest.raises(ConfigError, match=r"pipe\.pem: is not a regular file"):
        read(folder, tmp_path / "pipe.pem")


def test_files_that_do_not_work_stop_the_start(folder: TlsFolder, tmp_path: Path) -> None:
    other = TlsFolder.make(tmp_path / "other")
    with pytest.raises(ConfigError, match="are no certificate with its key: key values mismatch"):
        TlsFiles(folder.certificate, other.key, None)
    with pytest.raises(ConfigError, match=r"missing\.pem: cannot be read"):
        TlsFiles(folder.certificate, tmp_path / "missing.pem", None)
    with pytest.raises(ConfigError, match=r"tls_client_ca: .*tls\.key: holds no certificates"):
        TlsFiles(folder.certificate, folder.key, folder.key)
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-aes256", "-passout", "pass:x", "-in", str(folder.key)]
    subprocess.run([*command, "-out", str(encrypted)], check=True, capture_output=True)
    with pytest.raises(ConfigError, match="the key is encrypted"):
        TlsFiles(folder.certificate, encrypted, None)


@pytest.mark.parametrize(
    "when",
    [EXPIRES, datetime(2050, 1, 1, tzinfo=UTC), datetime(2126, 2, 28, 12, 30, 1, tzinfo=UTC)],
)
def test_expiry_is_read_in_both_of_its_forms(tmp_path: Path, when: datetime) -> None:
    folder = TlsFolder.make(tmp_path)
    folder.renew(expires=when)
    assert expires_at(folder.certificate.read_text()) == when.timestamp()
    assert read(folder).expires_at() == when.timestamp()


def test_expiry_is_what_openssl_says(tmp_path: Path) -> None:
    path, key = tmp_path / "own.pem", tmp_path / "own.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=ä", "-utf8", "-days", "30"]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True
    )
    told = subprocess.run(
        ["openssl", "x509", "-enddate", "-noout", "-in", str(path)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert expires_at(path.read_text()) == ssl.cert_time_to_seconds(
        told.stdout.strip().removeprefix("notAfter=")
    )


@pytest.mark.parametrize("text", ["", "MIIB", "\x30", "\x30\x03\x02\x01\x01", "\x30\x84\xff"])
def test_what_is_no_certificate_is_told(text: str) -> None:
    pem = ssl.DER_cert_to_PEM_cert(text.encode("latin-1"))
    with pytest.raises(ValueError, match="no X"):
        expires_at(pem)
