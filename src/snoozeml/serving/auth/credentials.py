"""The one secret that a request carries, out of the headers it may stand in."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from snoozeml.serving.auth.failures import NoCredentials, UnclearCredentials

Credentials: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Headers or metadata of the names in `CREDENTIAL_HEADERS`, as they came."""

CREDENTIAL_HEADERS: Final = frozenset({b"authorization", b"x-api-key"})
_BEARER: Final = b"bearer"

_NOT_BEARER: Final = "the Authorization header must be `Bearer`, followed by a key or a token"
_SEVERAL: Final = "the request carries several credentials that differ; send one"


def secret_in(credentials: Credentials) -> bytes:
    """The secret that a request carries.

    Raises:
        Unauthenticated: there is none, or there are several: a proxy in front of us and we could
            then have different ones in mind.
    """
    if not credentials:
        raise NoCredentials
    first, *others = (_secret(name, value) for name, value in credentials)
    if any(other != first for other in others):
        raise UnclearCredentials(_SEVERAL)
    return first


def _secret(name: bytes, value: bytes) -> bytes:
    secret = value.strip()
    if name == b"authorization":
        scheme, _, rest = secret.partition(b" ")
        secret = rest.strip()
        if not secret or scheme.lower() != _BEARER:
            raise UnclearCredentials(_NOT_BEARER)
    if not secret:
        raise NoCredentials
    return secret
