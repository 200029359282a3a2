"""Everything that somebody might show at the door, and what it is worth."""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jwt

from snoozeml.core.roles import Role

ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "snooze"
SECRET: Final = "the secret that tokens are signed with, long enough for SHA-256"
_OTHER_SECRET: Final = "another secret, as long as the real one is, for somebody else's"
_LONG_SECRET: Final = SECRET * 2
KEYS: Final = {
    Role.READONLY: "key-of-one-who-looks",
    Role.INFERENCE: "key-of-one-who-asks",
    Role.ADMIN: "key-of-one-who-rules",
}
SETTINGS: Final = f"""
[auth]
protect_metrics = true
[[auth.api_keys]]
name = "looks"
key_env = "LOOKS_KEY"
role = "ro"
[[auth.api_keys]]
name = "asks"
key_env = "ASKS_KEY"
role = "infer"
[[auth.api_keys]]
name = "rules"
key_env = "RULES_KEY"
role = "administrator"
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
"""
ENVIRONMENT: Final = {
    "LOOKS_KEY": KEYS[Role.READONLY],
    "ASKS_KEY": KEYS[Role.INFERENCE],
    "RULES_KEY": KEYS[Role.ADMIN],
    "SNOOZE_JWT_SECRET": SECRET,
}


class Shown(NamedTuple):
    """Headers, and the role they are worth; None: they are worth nothing."""

    headers: dict[str, str]
    role: Role | None


def token(secret: str = SECRET, algorithm: str | None = "HS256", **claims: Any) -> str:
    """A token that is good for an administrator, but for what is said; None leaves a claim out."""
    now = time.time()
    good = {"exp": now + 3600, "iss": ISSUER, "aud": AUDIENCE, "role": "admin"}
    given = {name: value for name, value in (good | claims).items() if value is not None}
    return jwt.encode(given, secret, algorithm)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def x_api_key(secret: str) -> dict[str, str]:
    return {"X-API-Key": secret}


def shown() -> Mapping[str, Shown]:
    now, admin = time.time(), KEYS[Role.ADMIN]
    good = token()
    worthless = {
        "nothing": {},
        "wrong key": bearer("key-of-one-who-rulez"),
        "wrong key in its own header": x_api_key("key-of-one-who-rulez"),
        "start of a key": bearer(admin[:-1]),
        "key and more": bearer(admin + "x"),
        "key without a scheme": {"Authorization": admin},
        "key of another scheme": {"Authorization": f"Basic {admin}"},
        "scheme without a key": {"Authorization": "Bearer"},
        "empty key": x_api_key(""),
        "bytes that are no text": x_api_key("\xff\xfe"),
        "expired token": bearer(token(exp=now - 3600)),
        "token that never expires": bearer(token(exp=None)),
        "token not yet valid": bearer(token(nbf=now + 3600)),
        "token of the future": bearer(token(iat=now + 3600)),
        "token of another issuer": bearer(token(iss="https://elsewhere.test")),
        "token of no issuer": bearer(token(iss=None)),
        "token for another audience": bearer(token(aud="other")),
        "token for no audience": bearer(token(aud=None)),
        "token signed by nobody": bearer(token(secret="", algorithm="none")),
        "token of another algorithm": bearer(token(_LONG_SECRET, "HS512")),
        "our secret, another algorithm": bearer(token(algorithm="HS384")),
        "truncated signature": bearer(good[:-3]),
        "no signature": bearer(good.rpartition(".")[0] + "."),
        "changed claims": bearer(_with_claims_of(token(role="readonly"), good)),
        "token for another secret": bearer(token(_OTHER_SECRET)),
        "deeply nested header": bearer("W1tbW1tb" * 700 + ".e30.AAAA"),
        "two keys that differ": bearer(admin) | x_api_key(KEYS[Role.READONLY]),
        "a good key and a bad one": bearer(admin) | x_api_key("wrong"),
        "a bad key and a good one": bearer("wrong") | x_api_key(admin),
        "a good token and a good key": bearer(good) | x_api_key(admin),
    }
    worth = {
        "readonly key": Shown(bearer(KEYS[Role.READONLY]), Role.READONLY),
        "inference key": Shown(x_api_key(KEYS[Role.INFERENCE]), Role.INFERENCE),
        "admin key": Shown(bearer(admin), Role.ADMIN),
        "the same key twice": Shown(bearer(admin) | x_api_key(admin), Role.ADMIN),
        "scheme in capitals": Shown({"Authorization": f"BEARER {admin}"}, Role.ADMIN),
        "readonly token": Shown(bearer(token(role="read_only")), Role.READONLY),
        "inference token": Shown(bearer(token(role="user")), Role.INFERENCE),
        "admin token": Shown(x_api_key(good), Role.ADMIN),
        "highest of roles": Shown(
            bearer(token(role=None, roles=["ro", "infer", "cook"])), Role.INFERENCE
        ),
        "token just expired": Shown(bearer(token(exp=now - 5)), Role.ADMIN),
        "token for several": Shown(bearer(token(aud=["other", AUDIENCE])), Role.ADMIN),
    }
    return {name: Shown(headers, None) for name, headers in worthless.items()} | worth


def _with_claims_of(token: str, claims_of: str) -> str:
    header, _, signature = token.split(".")
    return ".".join([header, claims_of.split(".")[1], signature])
