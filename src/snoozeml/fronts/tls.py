"""The certificate that every front shows, as its files are at that moment.

HTTP serves with `TlsFiles.context`; gRPC, whose library wants PEM, asks for `TlsFiles.current` at
each connection.
"""

import contextlib
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from snoozeml.config.keys import ConfigError
from snoozeml.config.schema import ServerConfig
from snoozeml.core.plan import FileStamp
from snoozeml.fronts import expiry

_log = logging.getLogger("snoozeml.tls")

Stamps = tuple[FileStamp, ...]


class Identity(NamedTuple):
    """What the files held at one time, as PEM, and the context made of it.

    Attributes:
        expires_at: seconds since 1970.
    """

    context: ssl.SSLContext
    certificate: bytes
    key: bytes
    client_ca: bytes | None
    expires_at: float


class TlsFiles:
    """Certificate, key, and the roots of clients' certificates if they must show any.

    Files are looked at when a client connects, which costs a few `stat` calls: renewing them is
    all that it takes to renew the certificate. Files that do not work leave the old one in place.

    Attributes:
        context: shows, in each handshake, the certificate of that moment.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        """Raises: ConfigError: these files are no certificate with its key."""
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._seen = self._stamps()
        self._refusal: str | None = None  # of the files as they were seen last
        self._identity = self._read()
        self.context = self._identity.context
        self.context.sni_callback = self._show_current

    @classmethod
    def of(cls, config: ServerConfig) -> Self | None:
        """None: TLS is not configured. Raises ConfigError."""
        if config.tls_cert is None or config.tls_key is None:
            return None
        return cls(config.tls_cert, config.tls_key, config.tls_client_ca)

    @property
    def asks_for_certificates(self) -> bool:
        return self._client_ca is not None

    def current(self) -> Identity:
        """What the files hold; if that does not work, what they held before."""
        with contextlib.suppress(ConfigError):  # which `renew` has told the operator
            self.renew()
        return self._identity

    def expires_at(self) -> float:
        """When the certificate that clients are shown expires, in seconds since 1970."""
        return self.current().expires_at

    def renew(self) -> None:
        """Look at the files now.

        Raises:
            ConfigError: they do not work; the old certificate stays.
        """
        stamps = self._stamps()
        if stamps == self._seen:
            if self._refusal is not None:
                raise ConfigError(self._refusal)
            return
        self._seen, self._refusal = stamps, None
        try:
            self._identity = self._read()
        except ConfigError as error:
            self._refusal = str(error)
            _log.warning("the certificate stays as it was: %s", error)
            raise
        until = datetime.fromtimestamp(self._identity.expires_at, UTC)
        _log.info("certificate renewed", extra={"fields": {"expires_at": until.isoformat()}})

    def _show_current(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        connection.context = self.current().context

    def _paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self._certificate, self._key, self._client_ca) if path)

    def _stamps(self) -> Stamps:
        return tuple(map(_stamp, self._paths()))

    def _read(self) -> Identity:
        certificate, key, *client_ca = map(_content, self._paths())
        try:
            until = expiry.expires_at(certificate.decode("latin-1"))
        except ValueError as error:
            raise ConfigError(f"tls_cert: {self._certificate}: {error}") from None
        context = self._new_context()
        if self._stamps() != self._seen:  # what we have read may be half old, half new
            raise ConfigError(f"tls_cert: {self._certificate}: changed while it was read")
        return Identity(context, certificate, key, client_ca[0] if client_ca else None, until)

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        pair = f"tls_cert: {self._certificate}, tls_key: {self._key}"
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except _Encrypted:
            raise ConfigError(f"{pair}: the key is encrypted; give one that is not") from None
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"{pair}: are no certificate with its key: {_why(error)}") from None
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except (ssl.SSLError, OSError) as error:
                why = f"holds no certificates: {_why(error)}"
                raise ConfigError(f"tls_client_ca: {self._client_ca}: {why}") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _Encrypted(Exception):
    """The key needs a password, which nobody is here to type."""


def _no_password() -> str:
    raise _Encrypted


def _why(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).replace("_", " ").lower()


def _stamp(path: Path) -> FileStamp:
    try:
        return FileStamp.of(path)
    except OSError:
        return FileStamp.of_nothing(path)


def _content(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise ConfigError(f"TLS: {path}: is not a regular file")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS: {path}: cannot be read: {error.strerror}") from None
