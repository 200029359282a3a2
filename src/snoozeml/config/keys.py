"""The keys of every table, checked against the schema."""

import difflib
import os
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import inspect
from msgspec.structs import FieldInfo, fields

from snoozeml.config.auth_schema import ApiKeyTable, AuthTable, JwtTable
from snoozeml.config.schema import ModelConfig, ServerConfig
from snoozeml.core.secret import Secret
from snoozeml.core.text import is_text
from snoozeml.errors import printable

Keys = Mapping[str, FieldInfo]

_SERVER: Final = {field.name: field for field in fields(ServerConfig)}
_MODEL: Final = {field.name: field for field in fields(ModelConfig)}


def _without(keys: Keys, *names: str) -> Keys:
    return {name: field for name, field in keys.items() if name not in names}


SERVER_KEYS: Final = _without(_SERVER, "config_path", "max_loaded_models")
MODEL_KEYS: Final = _without(_MODEL, "id", "format")
DEFAULTS_KEYS: Final = {
    **_without(MODEL_KEYS, "path", "description", "labels"),
    "max_loaded_models": _SERVER["max_loaded_models"],
}
OUTER_KEYS: Final = {**_SERVER, **DEFAULTS_KEYS}
"""What flags and environment variables may set: each applies to the whole daemon."""

AUTH_KEYS: Final = {field.name: field for field in fields(AuthTable)}
API_KEY_KEYS: Final = {field.name: field for field in fields(ApiKeyTable)}
JWT_KEYS: Final = {field.name: field for field in fields(JwtTable)}
JWT_DEFAULTS: Final = {
    key: field.default for key, field in JWT_KEYS.items() if field.default is not msgspec.NODEFAULT
}

_PLACES: Final = {
    "[server]": SERVER_KEYS,
    "[defaults]": DEFAULTS_KEYS,
    'a model\'s own table, [models."its id"]': MODEL_KEYS,
    "[auth]": AUTH_KEYS,
}


class ConfigError(Exception):
    """What the user asked for cannot be done as written.

    The message names the place (file and key, variable, flag or path), what was found there, and
    what would be right.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # a file's name need not be valid text


class FlagError(ConfigError):
    """A flag has a value that it cannot have: the command was called wrongly, no file is wrong."""


def check_keys(
    values: Mapping[str, object],
    keys: Keys,
    called: Callable[[str], str],
    base: Path,
    *,
    strict: bool = True,
) -> dict[str, Any]:
    """Check every key and value of a table; paths come back absolute.

    Args:
        called: the full name of a key for messages, such as `models.toml: server.port`.
        base: the folder that relative paths start from.
        strict: False where values are text by nature, as environment variables are.

    Raises:
        ConfigError: a key is not one of `keys`, or a value is not what its key wants.
    """
    return {
        key: _check(value, _field(key, keys, called), called(key), base, strict)
        for key, value in values.items()
    }


def _field(key: str, keys: Keys, called: Callable[[str], str]) -> FieldInfo:
    if key in keys:
        return keys[key]
    raise ConfigError(f"{called(key)}: unknown key; {hint(key, keys)}")


def hint(word: str, known: Collection[str]) -> str:
    """Where an unknown word belongs, or the known one that it looks like, or all that are known."""
    for place, keys in _PLACES.items():
        if word in keys:
            return f"it belongs in {place}"
    return did_you_mean(nearest(word, known)) or f"known are {', '.join(known)}"


def nearest(word: str, known: Collection[str], at_most: int = 1) -> list[str]:
    """The known words that look most like this one; none if none does."""
    return difflib.get_close_matches(word, sorted(known), n=at_most)


def did_you_mean(words: Sequence[str]) -> str:
    """The words as a question; empty if there are none."""
    return f"did you mean {' or '.join(words)}?" if words else ""


def _check(value: object, field: FieldInfo, name: str, base: Path, strict: bool) -> Any:
    try:
        checked = msgspec.convert(value, field.type, strict=strict, dec_hook=_to_path)
    except (msgspec.ValidationError, OverflowError, UnicodeEncodeError):
        raise wrong_value(name, _shown(value, field), expected(field)) from None
    if isinstance(checked, Path):
        path = absolute(checked, base)
        if not is_text(str(path)):
            raise wrong_value(name, str(path), "a path that is valid UTF-8")
        return path
    texts = checked if isinstance(checked, tuple) else (checked,)
    if not all(is_text(text) for text in texts if isinstance(text, str)):  # JSON can say so
        raise wrong_value(name, _shown(value, field), f"{expected(field)}, in valid UTF-8")
    return checked


def _shown(value: object, field: FieldInfo) -> object:
    """What a message may show of a value."""
    return Secret("") if _is_secret(field) else value


def wrong_value(name: str, value: object, wanted: str) -> ConfigError:
    """The error for a value of the wrong kind or size; `name` is the key's full name."""
    return ConfigError(f"{name}: {reprlib.repr(value)} was given; expected {wanted}")


def _to_path(_type: type, value: object) -> Path:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    try:
        return Path(value).expanduser()
    except RuntimeError as unknown_home:
        raise ValueError from unknown_home


def absolute(path: Path, base: Path) -> Path:
    """The one spelling of a path that we compare by; `base` is absolute.

    Linked folders are resolved; the last component is not, because a linked file goes by its own
    name (its target may be called after a digest).
    """
    whole = Path(os.path.normpath(base / path))
    return Path(os.path.realpath(whole.parent), whole.name)


def metadata(field: FieldInfo) -> inspect.Metadata:
    """What the schema says about a key; every key of a table is annotated."""
    return cast(inspect.Metadata, inspect.type_info(field.type))


def _is_secret(field: FieldInfo) -> bool:
    """Whether the value is a secret, or could be one that stands in the wrong place."""
    return bool((metadata(field).extra or {}).get("secret"))


def expected(field: FieldInfo) -> str:
    """What a key's value must be, in words."""
    info = metadata(field)
    return (info.extra or {}).get("expected") or _in_words(info.type)


def _in_words(info: inspect.Type) -> str:
    match info:
        case inspect.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case inspect.FloatType(gt=None, ge=low, le=high):
            return f"a number from {low} to {high}"
        case inspect.FloatType(gt=low, le=high):
            return f"a number above {low} and up to {high}"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case inspect.BoolType():
            return "true or false"
        case inspect.CustomType():
            return "a path"
        case inspect.StrType(min_length=None):
            return "text"
        case _:
            return "text that is not empty"
