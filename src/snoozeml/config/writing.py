"""Writing a model's entry into a configuration file that people wrote, comments kept.

What is written is read again by another parser first: a file that says anything else than it should
never takes the place of the old one.
"""

import json
import os
import shutil
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from snoozeml.config.keys import ConfigError

NEW_FILE: Final = "models.toml"
"""What a configuration file is called that is made because there was none."""

Settings = Mapping[str, Any]
_Table = MutableMapping[str, Any]


def with_entry(name: Path, text: str, model_id: str, settings: Settings) -> str:
    """A configuration with settings of one model; other settings that it has are kept.

    The model's `path` is not: the model is the one that is found under its id.

    Args:
        name: of the file; its suffix tells the format.
        text: what it says now; empty: there is none.

    Returns:
        `text` itself, if there is nothing to change.

    Raises:
        ConfigError: the file is written in a way that cannot be edited.
    """
    wanted = _parsed(name, text)
    _change(wanted, model_id, settings, dict)
    if wanted == _parsed(name, text):
        return text
    try:
        edited = _edited(name, text, model_id, settings)
        is_right = _parsed(name, edited) == wanted
    except (TOMLKitError, ValueError, TypeError, AttributeError, LookupError):
        is_right = False
    if not is_right:
        raise ConfigError(
            f'{name}: [models."{model_id}"] cannot be changed by itself, as this file is written; '
            "give the model a table of its own"
        )
    return edited


def settings_in(name: Path, text: str, model_id: str) -> Settings | None:
    """What a configuration says about a model; None: there is no entry."""
    found = (entry for key, entry in _entries(_parsed(name, text)) if _normal(key) == model_id)
    entry = next(found, None)
    return None if entry is None else {key: entry[key] for key in entry if key != "id"}


def without_entry(name: Path, text: str, model_id: str) -> str:
    """A configuration without the entry of one model, if that has a table of its own.

    Comments that follow it stay: they may be about what comes next.

    Raises:
        ConfigError: the file is written in a way that cannot be edited.
    """
    wanted = _parsed(name, text)
    _drop(wanted, model_id)
    edited = _dumped(wanted) if name.suffix == ".json" else _without_table(text, model_id)
    if {"models": {}} | _parsed(name, edited) != wanted:
        raise ConfigError(f'{name}: remove [models."{model_id}"], whose model is gone')
    return edited


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step for all who read it; a linked file stays linked.

    Raises:
        OSError: it cannot be written, and is as it was.
    """
    path, draft = Path(os.path.realpath(path)), draft_of(path)
    try:
        with draft.open("wb") as file:
            if path.exists():
                shutil.copymode(path, draft)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):  # it is not there, or cannot be written to either
            draft.unlink()


def draft_of(path: Path) -> Path:
    """What `replace_file` writes first; a process that dies meanwhile leaves it."""
    path = Path(os.path.realpath(path))
    return path.with_name(f".{path.name}.new")


def _edited(name: Path, text: str, model_id: str, settings: Settings) -> str:
    if name.suffix == ".json":
        document = _parsed(name, text)
        _change(document, model_id, settings, dict)
        return _dumped(document)
    written = tomlkit.parse(text)
    _change(written, model_id, settings, tomlkit.table)
    return tomlkit.dumps(written)


def _dumped(document: _Table) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _parsed(name: Path, text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = (
        json.loads(text or "{}") if name.suffix == ".json" else tomllib.loads(text)
    )
    return parsed


def _change(document: _Table, model_id: str, settings: Settings, table: Callable[[], Any]) -> None:
    entry = next((e for key, e in _entries(document) if _normal(key) == model_id), None)
    if entry is None and settings:
        entry = _new_entry(document, model_id, table)
    if entry is not None:
        entry.pop("path", None)
        entry.update(settings)


def _entries(document: _Table) -> Iterator[tuple[str, _Table]]:
    models = document.get("models", {})
    if isinstance(models, list):
        return ((entry["id"], entry) for entry in models)
    return iter(models.items())


def _drop(document: _Table, model_id: str) -> None:
    rest = [(key, entry) for key, entry in _entries(document) if _normal(key) != model_id]
    is_list = isinstance(document["models"], list)
    document["models"] = [entry for _, entry in rest] if is_list and rest else dict(rest)


def _without_table(text: str, model_id: str) -> str:
    """A TOML text without the lines of one table; as it is if there is no such table."""
    lines = text.splitlines(keepends=True)
    heads = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")]
    for start, end in pairwise([*heads, len(lines)]):
        if _holds_entry("".join(lines[start:end]), model_id):
            while lines[end - 1].lstrip()[:1] in ("", "#"):
                end -= 1
            while start > 0 and _is_blank(lines[start - 1 : start]) and _is_blank(lines[end:]):
                start -= 1
            return "".join(lines[:start] + lines[end:])
    return text


def _is_blank(lines: Sequence[str]) -> bool:
    """Whether the first line is, or there is none."""
    return not lines or not lines[0].strip()


def _holds_entry(table: str, model_id: str) -> bool:
    try:
        return any(_normal(key) == model_id for key, _ in _entries(tomllib.loads(table)))
    except (tomllib.TOMLDecodeError, LookupError):  # a line of a long text, or a list without ids
        return False


def _new_entry(document: _Table, model_id: str, table: Callable[[], Any]) -> _Table:
    models = document.get("models")
    if isinstance(models, list):
        models.append(table() | {"id": model_id})
        return cast(_Table, models[-1])
    if models is None:
        document["models"] = tomlkit.table(is_super_table=True) if table is tomlkit.table else {}
    document["models"][model_id] = table()
    return cast(_Table, document["models"][model_id])


def _normal(model_id: str) -> str:
    return unicodedata.normalize("NFC", model_id)
