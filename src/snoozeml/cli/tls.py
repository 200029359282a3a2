"""TLS as the control commands speak it: whom they trust, what they show, and why it failed."""

import ssl
from pathlib import Path
from typing import Final, NamedTuple

import click

_NO_ROOT: Final = frozenset({2, 18, 19, 20, 21})
"""What X509_verify_cert(3) finds where the right root would mend it; another name would not."""


class ClientTls(NamedTuple):
    """Files in PEM.

    Attributes:
        ca_cert: the roots to trust; None: those of OpenSSL.
        client_cert: what a daemon that asks for one is shown; None: nothing.
        client_key: None: it lies in the certificate's file.
    """

    ca_cert: Path | None
    client_cert: Path | None
    client_key: Path | None

    def context(self) -> ssl.SSLContext:
        """Raises: click.BadParameter: a file does not hold what it is said to hold."""
        try:
            context = ssl.create_default_context(cafile=self.ca_cert)
        except OSError as error:
            why = f"{self.ca_cert} holds no certificates: {_why(error)}"
            raise click.BadParameter(why, param_hint="'--ca-cert'") from None
        if self.client_cert is not None:
            try:
                context.load_cert_chain(self.client_cert, self.client_key)
            except OSError as error:
                where = self.client_key or self.client_cert
                why = f"{self.client_cert} is no certificate with its key in {where}: {_why(error)}"
                raise click.BadParameter(why, param_hint="'--client-cert'") from None
        return context

    def why_broken_off(self) -> str:
        """What may be wrong where a daemon with TLS hangs up; few of them say why."""
        if self.client_cert is None:
            return "Does it ask for a certificate (tls_client_ca)? --client-cert gives one"
        return f"Does its tls_client_ca lead to {self.client_cert} (--client-cert)?"

    def why_failed(self, url: str, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "; --ca-cert or SNOOZE_CA_CERT names a file of certificates to trust"
            why = f"cannot trust {url}: {error.verify_message}"
            return why + (hint if error.verify_code in _NO_ROOT else "")
        if "ALERT" in str(error.reason):  # so there is TLS
            return f"{url} refused us ({_why(error)}). {self.why_broken_off()}"
        plain = url.replace("https", "http", 1)
        return f"no TLS with {url} ({_why(error)}); a daemon without TLS is at {plain}"


def _why(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).replace("_", " ").lower()
