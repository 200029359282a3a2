"""Certificates to test with, made by authorities of our own."""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import trustme

EXPIRES = datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)


class TlsFolder(NamedTuple):
    """Where the daemon's files lie, and the authority that clients may trust."""

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def make(cls, folder: Path) -> "TlsFolder":
        folder.mkdir(parents=True, exist_ok=True)
        files = cls(folder / "tls.crt", folder / "tls.key", folder / "authority.pem")
        files.renew()
        return files

    def renew(self, *, expires: datetime = EXPIRES) -> None:
        """A new authority, and a new certificate of its, in the place of the old ones."""
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost", not_after=expires)
        _replace(self.key, issued.private_key_pem.bytes())
        _replace(self.certificate, b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        _replace(self.authority, authority.cert_pem.bytes())

    def environment(self) -> dict[str, str]:
        return {"SNOOZE_TLS_CERT": str(self.certificate), "SNOOZE_TLS_KEY": str(self.key)}


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(path)
