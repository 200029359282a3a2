"""From `[auth]`, variables and flags to who may do what.

INVARIANT: no message quotes a secret, nor what stands where a secret belongs.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from snoozeml.config.auth_schema import ApiKey, AuthConfig, JwtRules
from snoozeml.config.keys import (
    API_KEY_KEYS,
    AUTH_KEYS,
    JWT_DEFAULTS,
    JWT_KEYS,
    ConfigError,
    FlagError,
    Keys,
    check_keys,
    hint,
    wrong_value,
)
from snoozeml.core.roles import SPELLINGS, Role
from snoozeml.core.secret import Secret

_ADMIN_KEY: Final = "SNOOZE_API_KEY"
_KEYS: Final = "SNOOZE_API_KEYS"
_JWT_SECRET: Final = "SNOOZE_JWT_SECRET"  # noqa: S105 - the name of a variable
_API_KEY_FLAG: Final = "--api-key"
_JWT_FLAG: Final = "--jwt-secret"

_NO_CREDENTIALS: Final = (
    "is true, but nobody could ever come in: set SNOOZE_API_KEY to a key of your own, "
    "or add [[auth.api_keys]] with name, key_env and role, or set SNOOZE_JWT_SECRET"
)
_NOT_ASKED: Final = (
    "credentials are configured, but auth.enabled is false: everybody may do everything"
)
_IN_PROCESS_LIST: Final = (
    f"every user of this machine can see a secret that is given as a flag ({_API_KEY_FLAG}, "
    f"{_JWT_FLAG}); use {_KEYS} and {_JWT_SECRET}"
)


class AuthSettings(Struct, frozen=True, kw_only=True):
    """What a file says about authorisation, its keys checked.

    Attributes:
        keys: the settings of each `[[auth.api_keys]]`, under its full name for messages.
        jwt: None where there is no `[auth.jwt]`.
        place: the full name of `auth` for messages.
    """

    plain: dict[str, Any] = {}
    keys: dict[str, dict[str, Any]] = {}
    jwt: dict[str, Any] | None = None
    place: str = "auth"


class AuthFlags(Struct, frozen=True, kw_only=True):
    """What flags say: keys as `ROLE:KEY`, and the secret of tokens."""

    api_keys: tuple[Secret, ...] = ()
    jwt_secret: Secret | None = None


def read_auth(value: object, path: Path) -> AuthSettings:
    """Check the table `auth` of a file.

    Raises:
        ConfigError: it holds something that we do not act on.
    """
    place = f"{path}: auth"
    table = dict(_need(dict, value, place, "a table"))
    entries = _need(list, table.pop("api_keys", []), f"{place}.api_keys", "a list of tables")
    named = {f"{place}.api_keys, entry {number}": entry for number, entry in enumerate(entries, 1)}
    jwt = table.pop("jwt", None)
    for key in table.keys() - AUTH_KEYS.keys():
        known = (*AUTH_KEYS, "api_keys", "jwt")
        raise ConfigError(f"{place}.{key}: unknown key; {hint(key, known)}")
    return AuthSettings(
        plain=_table(table, AUTH_KEYS, place, path),
        keys={name: _key_entry(entry, name, path) for name, entry in named.items()},
        jwt=None if jwt is None else _table(jwt, JWT_KEYS, f"{place}.jwt", path),
        place=place,
    )


def _need(kind: type[Any], value: object, name: str, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise wrong_value(name, Secret(""), wanted)
    return value


def _table(value: object, keys: Keys, name: str, path: Path) -> dict[str, Any]:
    table = _need(dict, value, name, "a table")
    return check_keys(table, keys, lambda key: f"{name}.{key}", path.parent)


def _key_entry(value: object, name: str, path: Path) -> dict[str, Any]:
    entry = _table(value, API_KEY_KEYS, name, path)
    if ("key" in entry) == ("key_env" in entry):
        raise ConfigError(f"{name}: needs either key_env, the name of a variable, or key")
    if "role" not in entry:
        raise ConfigError(f"{name}: needs a role, one of {', '.join(SPELLINGS)}")
    if "burst" in entry and "requests_per_second" not in entry:
        raise ConfigError(f"{name}: burst means something only beside requests_per_second")
    return entry


def resolve(settings: AuthSettings, flags: AuthFlags, environ: Mapping[str, str]) -> AuthConfig:
    """Look up every secret, and keep no more of each than is needed.

    Raises:
        FlagError: a flag is not what it must be.
        ConfigError: a variable is not set or holds no possible secret, a key is there twice, or
            authorisation is wanted and nobody could be authorised.
    """
    named = {entry["key_env"] for entry in settings.keys.values() if "key_env" in entry}
    variables = frozenset({_ADMIN_KEY, _KEYS, _JWT_SECRET, _secret_variable(settings), *named})
    if settings.plain.get("enabled") is False:
        present = settings.keys or settings.jwt or flags != AuthFlags() or variables & {*environ}
        return AuthConfig(variables=variables, warnings=(_NOT_ASKED,) if present else ())
    keys = [
        *_from_file(settings, environ),
        *_from_environment({k: v for k, v in environ.items() if k not in named}),
        *_from_flags(flags),
    ]
    _refuse_doubles(keys)
    jwt = _jwt(settings, flags, environ)
    enabled = settings.plain.get("enabled", bool(keys or jwt))
    if enabled and not (keys or jwt):
        raise ConfigError(f"{settings.place}.enabled: {_NO_CREDENTIALS}")
    return AuthConfig(
        enabled=enabled,
        protect_metrics=enabled and settings.plain.get("protect_metrics", False),
        api_keys=tuple(keys),
        jwt=jwt,
        variables=variables,
        warnings=tuple(_warnings(settings, flags, jwt)),
    )


def _secret_variable(settings: AuthSettings) -> str:
    name: str = (settings.jwt or {}).get("secret_env", JWT_DEFAULTS["secret_env"])
    return name


def _from_file(settings: AuthSettings, environ: Mapping[str, str]) -> Iterator[ApiKey]:
    for place, entry in settings.keys.items():
        if "key_env" in entry:
            where, text = f"{place}: key_env", _variable(entry["key_env"], place, environ)
        else:
            where, text = f"{place}: key", entry["key"]
        rate = entry.get("requests_per_second")
        yield ApiKey(
            name=entry.get("name", place.rpartition(".")[2]),
            digest=_digest(text, where),
            role=SPELLINGS[entry["role"]],
            models=entry.get("models"),
            requests_per_second=rate,
            burst=entry.get("burst", math.ceil(rate or 1)),
        )


def _from_environment(environ: Mapping[str, str]) -> Iterator[ApiKey]:
    if text := environ.get(_ADMIN_KEY):
        yield ApiKey(name=_ADMIN_KEY, digest=_digest(text, _ADMIN_KEY), role=Role.ADMIN)
    pairs = [pair.strip() for pair in environ.get(_KEYS, "").split(",")]
    for number, pair in enumerate(filter(None, pairs), 1):
        yield _role_and_key(pair, f"{_KEYS}, entry {number}")


def _from_flags(flags: AuthFlags) -> Iterator[ApiKey]:
    try:
        for number, pair in enumerate(flags.api_keys, 1):
            yield _role_and_key(pair.reveal(), f"{_API_KEY_FLAG}, number {number}")
    except ConfigError as error:
        raise FlagError(str(error)) from None


def _role_and_key(pair: str, where: str) -> ApiKey:
    role, colon, key = pair.partition(":")
    if not colon or role not in SPELLINGS:
        roles = ", ".join(SPELLINGS)
        raise ConfigError(f"{where}: is not of the form ROLE:KEY; a role is one of {roles}")
    return ApiKey(name=where, digest=_digest(key, where), role=SPELLINGS[role])


def _variable(name: str, where: str, environ: Mapping[str, str]) -> str:
    """What a variable holds that must be set."""
    if text := environ.get(name):
        return text
    # What does not look like a name may be the secret itself, written in the wrong place.
    shown = name if name.isupper() and name.isidentifier() else "that it names"
    raise ConfigError(f"{where}: the environment variable {shown} is not set, or empty")


def _digest(key: str, where: str) -> bytes:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{where}: a key is made of printable ASCII characters without spaces")
    return hashlib.sha256(key.encode()).digest()


def _refuse_doubles(keys: Sequence[ApiKey]) -> None:
    names: dict[bytes, str] = {}
    for key in keys:
        if key.digest in names:
            raise ConfigError(f"{key.name}: is the same key as {names[key.digest]}")
        names[key.digest] = key.name


def _jwt(settings: AuthSettings, flags: AuthFlags, environ: Mapping[str, str]) -> JwtRules | None:
    secret = flags.jwt_secret
    if secret is None and (settings.jwt is not None or environ.get(_JWT_SECRET)):
        text = _variable(_secret_variable(settings), f"{settings.place}.jwt.secret_env", environ)
        secret = Secret(text)
    if secret is None:
        return None
    _check_hmac_secret(secret.reveal())
    rules = JWT_DEFAULTS | (settings.jwt or {})
    return JwtRules(
        secret=secret,
        algorithm=rules["algorithm"],
        issuer=rules.get("issuer"),
        audience=rules.get("audience"),
        leeway_s=rules["leeway_secs"],
    )


def _check_hmac_secret(text: str) -> None:
    if not text:
        raise FlagError(f"{_JWT_FLAG}: is empty")
    if "-----BEGIN" in text or text.startswith(("ssh-", "ecdsa-")):
        raise ConfigError(
            "the secret of tokens is a public or private key in a file format; HS256, HS384 and "
            "HS512 want a random text that only you and whoever makes tokens know"
        )


def _warnings(settings: AuthSettings, flags: AuthFlags, jwt: JwtRules | None) -> Iterator[str]:
    for place, entry in settings.keys.items():
        if "key" in entry:
            yield f"{place}: the key stands in the file for all to read; use key_env instead"
    if flags != AuthFlags():
        yield _IN_PROCESS_LIST
    if jwt is not None:
        wanted_bytes = int(jwt.algorithm.removeprefix("HS")) // 8
        if len(jwt.secret.reveal().encode()) < wanted_bytes:
            yield (
                f"the secret of tokens is shorter than the {wanted_bytes} bytes that "
                f"{jwt.algorithm} asks for (RFC 7518, section 3.2): it can be guessed"
            )
