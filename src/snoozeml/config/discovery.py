"""The models that lie in a folder, found by their files' names alone."""

import logging
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from snoozeml.config.keys import ConfigError, is_text
from snoozeml.core.plan import Format

_log = logging.getLogger("snoozeml.config")

SUFFIXES: Final[dict[str, Format]] = {
    ".onnx": "onnx",
    ".xgb.json": "xgboost",
    ".tree.json": "xgboost",
    ".xgb": "xgboost",
    ".ubj": "xgboost",
    ".lgb.txt": "lightgbm",
}

_NAMED_SUFFIXES: Final[dict[str, Format]] = {**SUFFIXES, ".json": "xgboost"}
"""What a file may be called that the configuration names; much that is no model ends in .json."""

_NOT_OURS: Final = frozenset({"lost+found"})  # a file system's own; only root may look inside


class Found(Struct, frozen=True):
    """A model file under the id that its name gives it, in Unicode normal form C."""

    id: str
    path: Path
    format: Format


def format_of(path: Path) -> Format | None:
    """The format of a file that the configuration names; upper and lower case are one."""
    name = path.name.lower()
    return next((form for suffix, form in _NAMED_SUFFIXES.items() if name.endswith(suffix)), None)


def discover(folder: Path) -> list[Found]:
    """Find the models in a folder and in the folders directly inside it.

    A file is called by its stem; the only model of an inner folder by that folder's name. Hidden
    entries are skipped. Links are followed, but each real folder is entered only once, so a link
    to a folder already seen, or to one that holds this one, leads nowhere. What no client could be
    told, because its path is not valid UTF-8, is passed over with a warning.

    Raises:
        ConfigError: a folder does not exist or cannot be read.
    """
    try:
        return _discover(Path(os.path.realpath(folder)))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{error.filename}: there is no such models folder; create it, "
            "or name another one with --models-dir or SNOOZE_MODELS_DIR"
        ) from error
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _discover(root: Path) -> list[Found]:
    found = [_by_stem(path, suffix) for path, suffix in _model_files(root)]
    seen: set[Path] = {root, *root.parents}
    for name, inner in _folders(root):
        if inner not in seen:
            seen.add(inner)
            found += _in_folder(name, inner)
    return _tellable(found)


def _tellable(found: list[Found]) -> list[Found]:
    """Without those whose file or folder has a name that is no text."""
    wrong = [m.path for m in found if not (is_text(m.id) and is_text(str(m.path)))]
    if wrong:
        names = ", ".join(os.fsencode(p).decode("utf-8", "backslashreplace") for p in wrong)
        _log.warning("not served, because the path is not valid UTF-8: %s; rename it", names)
    return [model for model in found if model.path not in wrong]


def _in_folder(name: str, folder: Path) -> list[Found]:
    files = _model_files(folder)
    if len(files) == 1:
        path, suffix = files[0]
        return [Found(_normal(name), path, SUFFIXES[suffix])]
    return [_by_stem(path, suffix) for path, suffix in files]


def _by_stem(path: Path, suffix: str) -> Found:
    return Found(_normal(path.name[: -len(suffix)]), path, SUFFIXES[suffix])


def _normal(name: str) -> str:
    """Some file systems hand out names decomposed (normal form D); ids are composed."""
    return unicodedata.normalize("NFC", name)


def _suffix_of(name: str) -> str | None:
    return next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), None)


def _model_files(folder: Path) -> list[tuple[Path, str]]:
    """The models directly in a folder, each with its suffix."""
    return [
        (path, suffix)
        for path in _visible(folder)
        if (suffix := _suffix_of(path.name)) and path.is_file()
    ]


def _folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Inner folders with their real paths; links last, so that a folder goes by its own name."""
    inner = [path for path in _visible(root) if path.name not in _NOT_OURS and path.is_dir()]
    for path in sorted(inner, key=Path.is_symlink):
        yield path.name, Path(os.path.realpath(path))


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
