"""The models that lie in a folder, found by their files' names alone."""

import logging
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from snoozeml.config.keys import ConfigError
from snoozeml.core.plan import Format
from snoozeml.core.text import is_text

_log = logging.getLogger("snoozeml.config")

SUFFIXES: Final[dict[str, Format]] = {
    ".onnx": "onnx",
    ".xgb.json": "xgboost",
    ".tree.json": "xgboost",
    ".xgb": "xgboost",
    ".ubj": "xgboost",
    ".lgb.txt": "lightgbm",
}

_WEIGHTS: Final = ".safetensors"
_PICKLES: Final = ".bin"
_USUAL_WEIGHTS: Final = "model.safetensors"
_WEIGHTS_INDEX: Final = ".safetensors.index.json"
_ARCHITECTURE: Final = "config.json"
_PYTHON: Final = ("snooze_model.py", "snooze_model.json")

_NOT_OURS: Final = frozenset({"lost+found"})  # a file system's own; only root may look inside

SERVED: Final = (
    f"{', '.join(SUFFIXES)}, a folder with {_ARCHITECTURE} and *{_WEIGHTS}, "
    f"or one with {_PYTHON[0]}"
)
"""What makes a model, in words that fit after "supported:"."""


class Found(Struct, frozen=True):
    """A model under the id that its name gives it, in Unicode normal form C.

    Attributes:
        path: its file; its folder where a format takes a whole folder.
    """

    id: str
    path: Path
    format: Format


def model_at(path: Path) -> tuple[Path, Format] | None:
    """The model that somebody means who names a path in the configuration, by names alone.

    A folder that is a model may be named by what makes it one, too. Any other JSON file must be
    XGBoost's, since somebody says that it is a model.
    """
    name = path.name.lower()
    if path.is_dir():
        folder = Path(os.path.realpath(path))
        format_ = _format_of_folder(_visible(folder))
        return None if format_ is None else (folder, format_)
    if path.name in _PYTHON:
        return path.parent, "python"
    if name.endswith(_WEIGHTS_INDEX):
        return path.parent, "safetensors"
    if name.endswith(_WEIGHTS):
        return (path if _is_one_of_several(path) else path.parent), "safetensors"
    if suffix := _suffix_of(name):
        return path, SUFFIXES[suffix]
    return (path, "xgboost") if name.endswith(".json") else None


def _is_one_of_several(weights: Path) -> bool:
    """Whether a folder has other checkpoints that could be meant when only it is named."""
    names = [path.name for path in _visible(weights.parent)]
    is_sharded = any(name.endswith(_WEIGHTS_INDEX) for name in names)
    count = sum(name.lower().endswith(_WEIGHTS) for name in names)
    return count > 1 and not is_sharded and weights.name != _USUAL_WEIGHTS


def discover(folder: Path) -> list[Found]:
    """Find the models in a folder and in the folders directly inside it.

    A file is called by its stem; the only model of an inner folder by that folder's name. A folder
    that is a model itself is called by its own name. If it holds other models they are called by
    their stems; but what Python code has beside it is its own business, and so are subfolders of
    any model. Hidden entries are skipped. Links are followed, but each real folder is entered only
    once, so a link to a folder already seen, or to one that holds this one, leads nowhere. What no
    client could be told, because its path is not valid UTF-8, is passed over with a warning.

    Args:
        folder: absolute.

    Raises:
        ConfigError: a folder does not exist or cannot be read.
    """
    try:
        return _discover(folder)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{error.filename}: there is no such models folder; create it, "
            "or name another one with --models-dir or SNOOZE_MODELS_DIR"
        ) from error
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _discover(folder: Path) -> list[Found]:
    root = Path(os.path.realpath(folder))
    if _format_of_folder(_visible(root)) is not None:
        return _tellable(_in_folder(folder.name, root))
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
    format_, files = _format_of_folder(_visible(folder)), _model_files(folder)
    if format_ is not None:
        whole = Found(_normal(name), folder, format_)
        return [whole] if format_ == "python" else [whole, *_by_stems(files)]
    if len(files) == 1:
        path, suffix = files[0]
        return [Found(_normal(name), path, SUFFIXES[suffix])]
    if not files:
        _warn_of_pickles(folder)
    return _by_stems(files)


def _warn_of_pickles(folder: Path) -> None:
    """Checkpoints as they were before safetensors hold code, and are never opened here."""
    names = [path.name for path in _visible(folder)]
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles and _ARCHITECTURE in names:
        _log.warning(
            "not served, because there is no *%s beside %s in %s: weights are not read from %s; "
            "save the model again, as safetensors",
            *(_WEIGHTS, _ARCHITECTURE, folder, pickles[0]),
        )


def _by_stems(files: list[tuple[Path, str]]) -> list[Found]:
    return [_by_stem(path, suffix) for path, suffix in files]


def _by_stem(path: Path, suffix: str) -> Found:
    return Found(_normal(stem(path.name)), path, SUFFIXES[suffix])


def stem(name: str) -> str:
    """A name without any of our suffixes, of which it may have several."""
    while (suffix := _suffix_of(name)) and len(suffix) < len(name):
        name = name[: -len(suffix)]
    return name


def _normal(name: str) -> str:
    """Some file systems hand out names decomposed (normal form D); ids are composed."""
    return unicodedata.normalize("NFC", name)


def _suffix_of(name: str) -> str | None:
    return next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), None)


def _format_of_folder(content: list[Path]) -> Format | None:
    """Python code that comes with weights is there to load them, so it counts first."""
    files = {path.name for path in content if path.is_file()}
    if not files.isdisjoint(_PYTHON):
        return "python"
    has_weights = any(name.lower().endswith(_WEIGHTS) for name in files)
    return "safetensors" if has_weights and _ARCHITECTURE in files else None


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
