"""Which models there are: those found, matched with the entries written for them."""

import stat
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Final

from msgspec import Struct

from snoozeml.config.discovery import SERVED, Found, model_at
from snoozeml.config.document import Entry
from snoozeml.config.keys import ConfigError, did_you_mean, nearest
from snoozeml.core.names import why_bad_model_id
from snoozeml.core.plan import Format

_NEAR: Final = 3  # names that a message suggests
_LISTED: Final = 5  # names that it lists where none is near


class Match(Struct, frozen=True):
    """A model that will be served: its id, where it is, and its entry if somebody wrote one."""

    id: str
    path: Path
    format: Format
    entry: Entry | None


def match(found: Sequence[Found], entries: Sequence[Entry]) -> list[Match]:
    """Decide which models there are.

    An entry with a path stands for that file, and the id that the file's name would have given it
    is free again. An entry without one stands for the model found under its id. Models without an
    entry keep the id they were found under.

    Raises:
        ConfigError: an entry has no file, or two models have one id.
    """
    paths = {model.path for model in found}
    matches = [_by_path(entry, paths) for entry in entries if "path" in entry.settings]
    taken = {model.path for model in matches}
    taken |= {m.path.parent for m in matches if m.format == "safetensors"}  # one checkpoint of many
    rest = [model for model in found if model.path not in taken]
    others = [entry for entry in entries if "path" not in entry.settings]
    _check_not_taken(others, found, matches)
    matches += _by_id(rest, others)
    _check_unique(matches)
    return matches


def _by_path(entry: Entry, found: Set[Path]) -> Match:
    """The model need not be one that was found: a path may lead anywhere."""
    path: Path = entry.settings["path"]
    name = f"{entry.name}.path: {path}"
    if path not in found:
        _check_there(path, name, found)
    model = model_at(path)
    if model is None:
        raise ConfigError(f"{name} is no model that we serve; supported: {SERVED}")
    return Match(entry.id, *model, entry)


def _check_there(path: Path, name: str, found: Set[Path]) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}; {_instead_of(path, found)}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ConfigError(f"{name} is neither a file nor a folder; name the model itself")


def _instead_of(path: Path, found: Set[Path]) -> str:
    """What else could have been meant: files of a like name, else those in the same folder."""
    folders = {folder for other in found for folder in other.parents}
    folder = next((folder for folder in path.parents if folder in folders), path.parent)
    inside = [other.relative_to(folder) for other in sorted(found) if folder in other.parents]
    # Without suffixes, which all have in common; as deep as a folder is searched for models.
    there = {str(file.with_suffix("")): str(file) for file in inside if len(file.parts) <= 2}
    near = nearest(str(path.relative_to(folder).with_suffix("")), there, _NEAR)
    if near:
        return did_you_mean([there[name] for name in near])
    return f"{folder} holds {_shortly(list(there.values()))}" if there else "check the path"


def _shortly(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _check_not_taken(
    entries: Sequence[Entry], found: Sequence[Found], by_path: Sequence[Match]
) -> None:
    """An entry may miss its model because another entry has given the file another id."""
    takers: dict[Path, list[str]] = {}
    for model in by_path:
        takers.setdefault(model.path, []).append(model.id)
    for entry in entries:
        files = [model.path for model in found if model.id == entry.id]
        if files and all(path in takers for path in files):
            raise ConfigError(
                f"{entry.name}: {files[0]} is served as {' and '.join(takers[files[0]])} already; "
                "to serve it under this id too, give this entry the same path"
            )


def _by_id(found: list[Found], entries: list[Entry]) -> list[Match]:
    ids = {model.id for model in found}
    for entry in entries:
        if entry.id not in ids:
            raise _nothing_found(entry, ids)
    by_id = {entry.id: entry for entry in entries}
    return [
        Match(_good_id(model), model.path, model.format, by_id.get(model.id)) for model in found
    ]


def _nothing_found(entry: Entry, ids: set[str]) -> ConfigError:
    meant = did_you_mean(nearest(entry.id, ids, _NEAR))
    hint = f"{meant} Rename" if meant else "give the entry the file's path,"
    return ConfigError(
        f"{entry.name}: no model with this id is in the models folder; {hint} or remove this entry"
    )


def _good_id(model: Found) -> str:
    if why := why_bad_model_id(model.id):
        raise ConfigError(
            f"{model.path}: its name makes no model id: {why}; "
            "rename it, or write an entry with another id and this path"
        )
    return model.id


def _check_unique(matches: list[Match]) -> None:
    paths: dict[str, Path] = {}
    for model in matches:
        if model.id in paths:
            raise ConfigError(
                f"two models have the id {model.id!r}: {paths[model.id]} and {model.path}; "
                "rename one, or write an entry with another id and its path"
            )
        paths[model.id] = model.path
