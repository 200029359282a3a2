"""A configuration file: read, checked, and not yet applied to anything."""

import json
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from snoozeml.config.auth import AuthSettings, read_auth
from snoozeml.config.keys import (
    DEFAULTS_KEYS,
    MODEL_KEYS,
    SERVER_KEYS,
    ConfigError,
    Keys,
    check_keys,
    hint,
    wrong_value,
)
from snoozeml.core.names import why_bad_model_id

_TABLES: Final = ("server", "defaults", "models", "auth")


class Entry(Struct, frozen=True, kw_only=True):
    """What a file says about one model.

    Attributes:
        settings: the keys given, checked; `path` is absolute.
        name: the table's full name for messages, such as `models.toml: models."bge"`.
    """

    id: str
    settings: dict[str, Any]
    name: str


class Document(Struct, frozen=True, kw_only=True):
    """A checked file; only the keys given are present."""

    path: Path | None = None
    server: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    entries: tuple[Entry, ...] = ()
    auth: AuthSettings = AuthSettings()


def read_document(path: Path) -> Document:
    """Read and check a `.toml` or `.json` file; `path` is absolute.

    Raises:
        ConfigError: the file cannot be read or parsed, or holds something we do not act on.
    """
    content = _parse(path)
    for table in content:
        if table not in _TABLES:
            raise ConfigError(f"{path}: {table}: unknown table; {hint(table, _TABLES)}")
    return Document(
        path=path,
        server=_table(content.get("server", {}), SERVER_KEYS, f"{path}: server", path),
        defaults=_table(content.get("defaults", {}), DEFAULTS_KEYS, f"{path}: defaults", path),
        entries=_entries(content.get("models", {}), path),
        auth=read_auth(content.get("auth", {}), path),
    )


def _parse(path: Path) -> dict[str, Any]:
    parser = _PARSERS.get(path.suffix)
    if parser is None:
        raise ConfigError(f"{path}: a configuration file ends in {' or '.join(_PARSERS)}")
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise ConfigError(f"{path}: is not a regular file")
        # Some editors start a file with a byte order mark, which neither format knows.
        content = parser(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text: byte {error.start} is wrong") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not valid {path.suffix[1:].upper()}: {error}") from error
    return _need_table(content, str(path))


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_without_duplicates)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON keeps the last of two equal keys without a word; TOML and we refuse the second."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice!r} is there twice in one object")
    return table


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {".toml": tomllib.loads, ".json": _parse_json}


def _need_table(value: object, name: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise wrong_value(name, value, "a table")


def _table(value: object, keys: Keys, name: str, path: Path) -> dict[str, Any]:
    return check_keys(_need_table(value, name), keys, lambda key: f"{name}.{key}", path.parent)


def _entries(models: object, path: Path) -> tuple[Entry, ...]:
    named = _from_list(models, path) if isinstance(models, list) else _from_table(models, path)
    entries: dict[str, Entry] = {}
    for raw_id, settings in named:
        entry = _entry(raw_id, settings, path)
        if entry.id in entries:
            raise ConfigError(f"{entry.name}: there are two entries with this id")
        entries[entry.id] = entry
    return tuple(entries.values())


def _from_table(models: object, path: Path) -> Iterator[tuple[str, object]]:
    yield from _need_table(models, f"{path}: models").items()


def _from_list(models: list[object], path: Path) -> Iterator[tuple[str, object]]:
    for number, item in enumerate(models, 1):
        name = f"{path}: models, entry {number}"
        settings = dict(_need_table(item, name))
        if "id" not in settings:
            raise ConfigError(f"{name}: has no id")
        raw_id = settings.pop("id")
        if not isinstance(raw_id, str):
            raise wrong_value(f"{name}: id", raw_id, "text")
        yield raw_id, settings


def _entry(raw_id: str, value: object, path: Path) -> Entry:
    model_id = unicodedata.normalize("NFC", raw_id)
    name = f'{path}: models."{model_id}"'
    if why := why_bad_model_id(model_id):
        raise ConfigError(f"{name}: is not a possible model id: {why}")
    settings = _need_table(value, name)
    _refuse_tables_inside(settings, model_id, name)
    if isinstance(labels := settings.get("labels"), str):
        settings = settings | {"labels": _lines(path.parent / labels, f"{name}.labels")}
    return Entry(id=model_id, settings=_table(settings, MODEL_KEYS, name, path), name=name)


def _lines(path: Path, name: str) -> list[str]:
    """The lines of a file that a key names."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise ConfigError(f"{name}: {path}: is not a regular file")
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError(f"{name}: {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name}: {path}: is not UTF-8 text: byte {error.start} is wrong"
        ) from error
    except ValueError as error:  # NUL, or half a surrogate pair
        raise wrong_value(name, str(path), "a path") from error


def _refuse_tables_inside(settings: dict[str, Any], model_id: str, name: str) -> None:
    """[models.bge-v1.5] means a table `5` in `bge-v1`: the likeliest reason for a table in here."""
    for key, value in settings.items():
        if isinstance(value, dict):
            raise ConfigError(
                f"{name}.{key}: a model has no tables of its own; an id with dots needs quotes, "
                f'as in [models."{model_id}.{key}"]'
            )
