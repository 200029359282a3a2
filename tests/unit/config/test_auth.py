"""Who may do what, as flags, variables and files say it; and that nobody else is told."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from snoozeml.config.auth import AuthFlags
from snoozeml.config.auth_schema import AuthConfig
from snoozeml.config.keys import ConfigError, FlagError
from snoozeml.core.roles import SPELLINGS, Role
from snoozeml.core.secret import Secret
from unit.config.house import House

SECRET = "hunter2-hunter2"
LONG = "0123456789abcdef" * 4


def auth(
    house: House, text: str = "", environ: dict[str, str] | None = None, **flags: Any
) -> AuthConfig:
    if text:
        house.write(text)
    return house.load(environ, **flags).auth


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def roles(config: AuthConfig) -> dict[bytes, Role]:
    return {key.digest: key.role for key in config.api_keys}


def entry(**settings: str) -> str:
    lines = [f"{key} = {value}" for key, value in settings.items()]
    return "\n".join(["[[auth.api_keys]]", *lines, ""])


def test_without_credentials_nobody_is_asked(house: House) -> None:
    assert auth(house) == AuthConfig(
        variables=frozenset({"SNOOZE_API_KEY", "SNOOZE_API_KEYS", "SNOOZE_JWT_SECRET"})
    )


def test_the_example_of_the_documentation(house: House) -> None:
    config = auth(
        house,
        """
        [auth]
        enabled = true
        protect_metrics = true
        [[auth.api_keys]]
        name = "production-client"
        key_env = "PROD_CLIENT_API_KEY"
        role = "inference"
        [auth.jwt]
        secret_env = "TOKENS"
        algorithm = "HS384"
        issuer = "i"
        audience = "a"
        leeway_secs = 5
        """,
        {"PROD_CLIENT_API_KEY": SECRET, "TOKENS": LONG},
    )
    assert config.enabled
    assert config.protect_metrics
    (key,) = config.api_keys
    assert (key.name, key.role, key.digest) == ("production-client", Role.INFERENCE, digest(SECRET))
    assert config.jwt is not None
    assert config.jwt.secret.reveal() == LONG
    assert (config.jwt.algorithm, config.jwt.issuer, config.jwt.audience) == ("HS384", "i", "a")
    assert config.jwt.leeway_s == 5
    assert {"PROD_CLIENT_API_KEY", "TOKENS"} <= config.variables
    assert config.warnings == ()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_role_is_taken_everywhere(house: House, spelling: str) -> None:
    config = auth(
        house,
        entry(key_env='"K"', role=f'"{spelling}"'),
        {"K": "one", "SNOOZE_API_KEYS": f"{spelling}:two"},
        auth=AuthFlags(api_keys=(Secret(f"{spelling}:three"),)),
    )
    assert roles(config) == {digest(key): SPELLINGS[spelling] for key in ("one", "two", "three")}


def test_variables_alone_are_enough(house: House) -> None:
    config = auth(
        house, "", {"SNOOZE_API_KEY": "boss", "SNOOZE_API_KEYS": "ro:looks, infer:with:colon ,"}
    )
    assert config.enabled
    assert roles(config) == {
        digest("boss"): Role.ADMIN,
        digest("looks"): Role.READONLY,
        digest("with:colon"): Role.INFERENCE,
    }
    assert auth(house, "", {"SNOOZE_JWT_SECRET": LONG}).jwt is not None


def test_an_entry_that_names_a_variable_says_what_its_key_may(house: House) -> None:
    text = entry(key_env='"SNOOZE_API_KEY"', role='"readonly"')
    config = auth(house, text, {"SNOOZE_API_KEY": SECRET})
    assert roles(config) == {digest(SECRET): Role.READONLY}


def test_limits_of_a_key(house: House) -> None:
    text = entry(
        key_env='"K"', role='"user"', models='["bge-*", "iris"]', requests_per_second="2.5"
    )
    (key,) = auth(house, text, {"K": SECRET}).api_keys
    assert (key.models, key.requests_per_second, key.burst) == (("bge-*", "iris"), 2.5, 3)
    (key,) = auth(house, text + "burst = 9\n", {"K": SECRET}).api_keys
    assert key.burst == 9


def test_explicitly_off_is_off_and_says_so_beside_credentials(house: House) -> None:
    text = "[auth]\nenabled = false\n" + entry(key_env='"NOT_SET"', role='"ro"')
    config = auth(house, text)
    assert not config.enabled
    assert "everybody may do everything" in config.warnings[0]
    assert "NOT_SET" in config.variables
    assert auth(house, "[auth]\nenabled = false\n").warnings == ()


def test_what_is_kept_carelessly_is_warned_of(house: House) -> None:
    config = auth(
        house,
        entry(key=f'"{SECRET}"', role='"ro"'),
        auth=AuthFlags(api_keys=(Secret("admin:flagged"),), jwt_secret=Secret("short")),
    )
    plain, flag, short = config.warnings
    assert re.search(r"models.toml: auth.api_keys, entry 1: .* use key_env", plain)
    assert "--api-key" in flag
    assert "32 bytes that HS256" in short
    assert not [word for word in (SECRET, "flagged", "short\b") if word in "".join(config.warnings)]


def test_nothing_that_is_printed_holds_a_secret(house: House) -> None:
    flags = AuthFlags(api_keys=(Secret("admin:flagged"),), jwt_secret=Secret(LONG))
    config = auth(house, entry(key=f'"{SECRET}"', role='"ro"'), auth=flags)
    for value in (config, flags, house.load(auth=flags)):
        assert not [word for word in (SECRET, LONG, "flagged") if word in f"{value} {value!r}"]


JWT = {"SNOOZE_JWT_SECRET": LONG}
WRONG: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "enabled without credentials": (
        "[auth]\nenabled = true",
        {},
        ["auth.enabled", "SNOOZE_API_KEY", "[[auth.api_keys]]", "SNOOZE_JWT_SECRET"],
    ),
    "neither key nor variable": (entry(role='"ro"'), {}, ["entry 1: needs either key_env"]),
    "key and variable": (
        entry(key=f'"{SECRET}"', key_env='"K"', role='"ro"'), {}, ["entry 1: needs either key_env"],
    ),
    "no role": (entry(key=f'"{SECRET}"'), {}, ["entry 1: needs a role, one of readonly"]),
    "unknown role": (entry(key=f'"{SECRET}"', role='"cook"'), {}, ["role: 'cook' was given"]),
    "unset variable": (entry(key_env='"PROD_KEY"', role='"ro"'), {}, ["PROD_KEY is not set"]),
    "empty variable": (entry(key_env='"K"', role='"ro"'), {"K": ""}, ["variable K is not set"]),
    "secret instead of a variable": (
        entry(key_env=f'"{SECRET}"', role='"ro"'), {}, ["entry 1: the environment variable that"],
    ),
    "key that is no text": (entry(key="12345678", role='"ro"'), {}, ["entry 1.key: <secret> was"]),
    "variable that is a table": (
        entry(key_env=f'{{a = "{SECRET}"}}', role='"ro"'), {}, ["key_env: <secret> was given"],
    ),
    "key with a space": (entry(key=f'"{SECRET} "', role='"ro"'), {}, ["printable ASCII"]),
    "keys that are no list": (f'[auth]\napi_keys = "{SECRET}"', {}, ["a list of tables"]),
    "entry that is no table": (f'[auth]\napi_keys = ["{SECRET}"]', {}, ["entry 1: <secret> was"]),
    "jwt that is no table": (f'[auth]\njwt = "{SECRET}"', {}, ["auth.jwt: <secret> was given"]),
    "auth that is no table": (f'auth = "{SECRET}"', {}, ["auth: <secret> was given"]),
    "misspelt list": (
        f'[[auth.api_key]]\nkey = "{SECRET}"', {}, ["api_key: unknown key; did you mean api_keys"],
    ),
    "misspelt key": (entry(keys=f'"{SECRET}"'), {}, ["keys: unknown key; did you mean key"]),
    "secret in the file": (
        f'[auth.jwt]\nsecret = "{SECRET}"', {}, ["auth.jwt.secret: unknown key", "secret_env?"],
    ),
    "no models": (entry(key=f'"{SECRET}"', role='"ro"', models="[]"), {}, ["models: [] was given"]),
    "no rate": (
        entry(key=f'"{SECRET}"', role='"ro"', requests_per_second="0"), {}, ["a number above 0"],
    ),
    "burst without a rate": (
        entry(key=f'"{SECRET}"', role='"ro"', burst="2"), {}, ["beside requests_per_second"],
    ),
    "the same key twice": (
        entry(name='"a"', key=f'"{SECRET}"', role='"ro"')
        + entry(name='"b"', key_env='"K"', role='"admin"'),
        {"K": SECRET},
        ["b: is the same key as a"],
    ),
    "no secret for tokens": ("[auth.jwt]", {}, ["SNOOZE_JWT_SECRET is not set"]),
    "unknown algorithm": ('[auth.jwt]\nalgorithm = "none"', JWT, ["HS256, HS384, HS512"]),
    "algorithm of public keys": ('[auth.jwt]\nalgorithm = "RS256"', JWT, ["'RS256' was given"]),
    "public key as secret": (
        "[auth.jwt]", {"SNOOZE_JWT_SECRET": f"-----BEGIN PUBLIC KEY-----{SECRET}"}, ["random text"],
    ),
    "pair without a role": ("", {"SNOOZE_API_KEYS": f"ro:x,{SECRET}"}, ["entry 2: is not of the"]),
    "pair of an unknown role": ("", {"SNOOZE_API_KEYS": f"{SECRET}:x"}, ["SNOOZE_API_KEYS, entry"]),
    "pair without a key": ("", {"SNOOZE_API_KEYS": "ro:"}, ["entry 1: a key is made of"]),
    "line break in a variable": ("", {"SNOOZE_API_KEY": f"{SECRET}\n"}, ["API_KEY: a key is"]),
    "broken file": (f'[[auth.api_keys]]\nkey = "{SECRET}', {}, ["is not valid TOML"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_and_no_secret_quoted(house: House, case: str) -> None:
    text, environ, words = WRONG[case]
    with pytest.raises(ConfigError) as error:
        auth(house, text, environ)
    for word in words:
        assert word in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "flags",
    [
        AuthFlags(api_keys=(Secret(SECRET),)),
        AuthFlags(api_keys=(Secret(f"ro:{SECRET} {SECRET}"),)),
        AuthFlags(jwt_secret=Secret("")),
    ],
)
def test_a_wrong_flag_is_wrong_usage(house: House, flags: AuthFlags) -> None:
    with pytest.raises(FlagError, match=r"^--(api-key|jwt-secret)") as error:
        auth(house, auth=flags)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('tls_cert = "c.pem"', "belong together"),
        ('tls_key = "k.pem"', "belong together"),
        ('tls_client_ca = "ca.pem"', "only beside tls_cert"),
    ],
)
def test_tls_needs_a_certificate_and_its_key(house: House, settings: str, said: str) -> None:
    house.write(f"[server]\n{settings}\n")
    with pytest.raises(ConfigError, match=said):
        house.load()


def test_paths_of_tls_start_from_the_files_folder_or_from_here(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    path = house.write('[server]\ntls_cert = "c.pem"\ntls_key = "k.pem"\n')
    server = house.load(tls_key=Path("mine.pem")).server
    assert server.tls_cert == path.resolve().parent / "c.pem"
    assert server.tls_key == tmp_path.resolve() / "mine.pem"
