"""Who may do what: the keys of `[auth]` as they are written, and what they come to."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from snoozeml.core.roles import SPELLINGS, Role
from snoozeml.core.secret import Secret

_VARIABLE: Final = {"expected": "the name of an environment variable", "secret": True}
_A_DAY_S: Final = 24 * 3600

Algorithm = Literal["HS256", "HS384", "HS512"]


class AuthTable(Struct, frozen=True, kw_only=True):
    """The plain keys of `[auth]`."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether requests need credentials. Left out, they do where any are "
            "configured, here, as a flag or as a variable.",
            extra={"default": "true, where there are credentials"},
        ),
    ]
    protect_metrics: Annotated[
        bool, Meta(description="Whether `/metrics` needs the role admin, rather than nothing.")
    ] = False


class ApiKeyTable(Struct, frozen=True, kw_only=True):
    """One of `[[auth.api_keys]]`: exactly one of `key` and `key_env`."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            description="What the key is called in messages.",
            extra={"default": "its place in the list"},
        ),
    ]
    key_env: Annotated[
        str,
        Meta(
            min_length=1,
            description="The variable that holds the key.",
            extra=_VARIABLE | {"default": "none"},
        ),
    ]
    key: Annotated[
        str,
        Meta(
            min_length=1,
            description="The key itself; whoever reads the file knows it, hence a warning.",
            extra={"expected": "text that is not empty", "default": "none", "secret": True},
        ),
    ]
    role: Annotated[
        str,
        Meta(
            pattern=rf"^({'|'.join(SPELLINGS)})\Z",
            description="What the key may do: `readonly` looks, `inference` asks models too, "
            "`admin` does everything.",
            extra={"expected": f"one of {', '.join(SPELLINGS)}", "default": "must be given"},
        ),
    ]
    models: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            min_length=1,
            description="The models that the key may see and use, as patterns of their ids: `*` "
            "is any text, `?` any character, `[ab]` either one.",
            extra={"expected": 'a list such as ["bge-*", "iris"]', "default": "all"},
        ),
    ]
    requests_per_second: Annotated[
        float,
        Meta(
            gt=0,
            le=1_000_000,
            description="How many requests the key may make, in the long run.",
            extra={"unit": "1/s", "default": "no limit"},
        ),
    ]
    burst: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="How many of them it may make at once after a pause.",
            extra={"unit": "requests", "default": "those of one second"},
        ),
    ]


class JwtTable(Struct, frozen=True, kw_only=True):
    """The keys of `[auth.jwt]`."""

    secret_env: Annotated[
        str,
        Meta(
            min_length=1,
            description="The variable that holds the secret which tokens are signed with.",
            extra=_VARIABLE,
        ),
    ] = "SNOOZE_JWT_SECRET"  # noqa: S105 - the name of a variable
    algorithm: Annotated[
        Algorithm,
        Meta(description="How tokens are signed; whatever a token itself says about it is no use."),
    ] = "HS256"
    issuer: Annotated[
        str,
        Meta(
            min_length=1,
            description="What `iss` of a token must be.",
            extra={"default": "not looked at"},
        ),
    ]
    audience: Annotated[
        str,
        Meta(
            min_length=1,
            description="What `aud` of a token must be or hold.",
            extra={"default": "not looked at"},
        ),
    ]
    leeway_secs: Annotated[
        float,
        Meta(
            ge=0,
            le=_A_DAY_S,
            extra={"unit": "s"},
            description="How far the clocks of those who make tokens may be from ours.",
        ),
    ] = 60.0


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key that opens the door.

    Attributes:
        digest: SHA-256 of the key, which itself is forgotten.
        models: patterns of ids; None: all models.
        requests_per_second: None: no limit.
    """

    name: str
    digest: bytes
    role: Role
    models: tuple[str, ...] | None = None
    requests_per_second: float | None = None
    burst: int = 1


class JwtRules(Struct, frozen=True, kw_only=True):
    """What makes a token good; None is not looked at."""

    secret: Secret
    algorithm: Algorithm
    issuer: str | None
    audience: str | None
    leeway_s: float


class AuthConfig(Struct, frozen=True, kw_only=True):
    """Who may do what.

    Attributes:
        variables: environment variables that hold a secret, which no child may inherit.
        warnings: what the operator should know about how the secrets are kept.
    """

    enabled: bool = False
    protect_metrics: bool = False
    api_keys: tuple[ApiKey, ...] = ()
    jwt: JwtRules | None = None
    variables: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
