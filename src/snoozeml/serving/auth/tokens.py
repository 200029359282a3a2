"""JSON web tokens, by PyJWT."""

import hashlib
import time
import warnings
from collections.abc import Callable
from typing import Any, Final

import jwt

from snoozeml.config.auth_schema import JwtRules
from snoozeml.core.roles import SPELLINGS, Role
from snoozeml.serving.auth.failures import UNKNOWN, ExpiredToken, RoleTooLow, UnknownCredentials
from snoozeml.serving.auth.principal import Principal

_REMEMBERED: Final = 1024  # tokens; a client keeps one for minutes, so these are as many clients
_LONGEST_NAME: Final = 100

_REASONS: Final[dict[type[jwt.InvalidTokenError], str]] = {
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidIssuerError: "the token is of another issuer",
    jwt.InvalidAudienceError: "the token is for another audience",
}
"""What PyJWT finds, like a claim's absence, only after it has found the signature right: nobody
else learns it."""

# The configuration has warned of a secret that is too short, in words that name the place.
warnings.filterwarnings("ignore", category=jwt.InsecureKeyLengthWarning)


class TokenVerifier:
    """Tells who sent a token.

    Verifying takes tens of microseconds, and a client sends the same token again and again. So
    good ones are remembered by their digest, until they expire. Bad ones are not, so that nobody
    without the secret can fill the memory.

    Args:
        wall_clock: seconds since 1970.
    """

    def __init__(self, rules: JwtRules, wall_clock: Callable[[], float] = time.time) -> None:
        self._secret = rules.secret.reveal()
        self._leeway_s = rules.leeway_s
        self._wall_clock = wall_clock
        self._arguments: dict[str, Any] = {
            "algorithms": [rules.algorithm],
            "issuer": rules.issuer,
            "audience": rules.audience,
            "leeway": rules.leeway_s,
            "options": {"require": ["exp"], "verify_aud": rules.audience is not None},
        }
        self._remembered: dict[bytes, tuple[Principal, int]] = {}

    def verify(self, token: bytes) -> Principal:
        """Who sent it.

        Raises:
            Unauthenticated: it is no token of ours, or not at this time.
            PermissionDenied: it is good, and names no role that we know.
        """
        digest = hashlib.sha256(token).digest()
        principal, expires_at = self._remembered.get(digest, (None, 0))
        if principal is not None and self._wall_clock() - self._leeway_s < expires_at:
            return principal
        self._remembered.pop(digest, None)
        principal, expires_at = self._decode(token)
        if len(self._remembered) >= _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = principal, expires_at
        return principal

    def _decode(self, token: bytes) -> tuple[Principal, int]:
        """Who sent it, and when it expires, which may be in more seconds than a float can count."""
        try:
            claims = jwt.decode(token, self._secret, **self._arguments)
        except jwt.ExpiredSignatureError:
            raise ExpiredToken from None
        except jwt.InvalidTokenError as error:
            raise UnknownCredentials(_reason(error)) from None
        role = _role(claims)
        if role is None:
            raise RoleTooLow("the token names no role; it is one of " + ", ".join(SPELLINGS))
        return Principal(_name(claims), role), int(claims["exp"])


def _reason(error: jwt.InvalidTokenError) -> str:
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"the token has no {error.claim}, which it needs"
    return _REASONS.get(type(error), UNKNOWN)


def _name(claims: dict[str, Any]) -> str:
    name = str(claims.get("sub", ""))
    return name if name.isprintable() and 0 < len(name) <= _LONGEST_NAME else "this token"


def _role(claims: dict[str, Any]) -> Role | None:
    """The role in `role`, or else the highest of `roles`."""
    given = claims["role"] if "role" in claims else claims.get("roles")
    words = given if isinstance(given, list) else [given]
    roles = [SPELLINGS[word] for word in words if isinstance(word, str) and word in SPELLINGS]
    return max(roles, default=None)
