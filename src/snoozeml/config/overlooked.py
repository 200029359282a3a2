"""Files that look like models and are none of those that are served."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from snoozeml.errors import printable

_PICKLES: Final = (".pkl", ".pickle", ".joblib")
_BEGINNINGS: Final = {".json": (b'{"learner"', "xgboost"), ".txt": (b"tree\n", "lightgbm")}
"""What the files that XGBoost and LightGBM write begin with."""

_ADVICE: Final = {
    "xgboost": "Models of XGBoost must be called *.xgb.json, or be named with `path`",
    "lightgbm": "Models of LightGBM must be called *.lgb.txt",
    "pickle": "Pickles hold code, and are never opened: export the model to ONNX, or load it in a "
    "snooze_model.py",
}
_MOST_NAMES: Final = 5


def overlooked(folder: Path, served: Collection[Path]) -> tuple[str, ...]:
    """What somebody may wait for in vain, and what to do about it, in a sentence for each kind.

    Args:
        served: the models that there are; what lies in one that is a folder is its own.
    """
    found: dict[str, list[str]] = {kind: [] for kind in _ADVICE}
    own = {path.resolve() for path in served}
    for path in sorted(_candidates(folder)):
        real = path.resolve()
        if real not in own and real.parent not in own and (kind := _kind(path)):
            found[kind].append(printable(str(path.relative_to(folder))))
    return tuple(
        f"not served: {_few(found[kind])}. {_ADVICE[kind]}" for kind in found if found[kind]
    )


def _candidates(folder: Path) -> Iterator[Path]:
    """The files where models are looked for, hidden ones left out."""
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            names = path.relative_to(folder).parts
            if not any(name.startswith(".") for name in names) and path.is_file():
                yield path


def _kind(path: Path) -> str | None:
    suffix = path.suffix.lower()
    if suffix in _PICKLES:
        return "pickle"
    if suffix in _BEGINNINGS:
        beginning, kind = _BEGINNINGS[suffix]
        return kind if _begins_with(path, beginning) else None
    return None


def _begins_with(path: Path, beginning: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(beginning)) == beginning
    except OSError:
        return False


def _few(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
