"""What a client asks for beside the file it sends."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from snoozeml.config.discovery import SERVED, SUFFIXES, stem
from snoozeml.config.keys import MODEL_KEYS, ConfigError, check_keys, hint
from snoozeml.core.names import as_model_id, why_bad_model_id
from snoozeml.errors import InvalidInput

SETTINGS: Final = (
    "description", "pinned", "max_batch_size", "max_batch_delay_ms", "idle_timeout_secs",
    "min_residency_secs", "autoscale_queue_threshold", "max_replicas", "routing_strategy", "device",
)  # fmt: skip
"""The settings that may come with a model."""

FIELDS: Final = ("model_id", "overwrite", *SETTINGS)

_KEYS: Final = {name: MODEL_KEYS[name] for name in SETTINGS}
_OTHERS_PLACES: Final = frozenset({"models.toml", "models.json", "lost+found"})

ARCHIVE: Final = ".zip"


class Wish(NamedTuple):
    """What was asked for, checked.

    Attributes:
        suffix: what the file's name says that it is: one of discovery's, or `.zip`.
        settings: as they go into the configuration; only those that were given.
    """

    model_id: str
    overwrite: bool
    suffix: str
    settings: dict[str, Any]


def read_wish(fields: Mapping[str, str], file_name: str) -> Wish:
    """Check the text fields, and the file's name.

    Args:
        fields: an empty text counts as not given.
        file_name: as the client calls it; no path is ever made of it.

    Raises:
        InvalidInput: names the field.
    """
    for name in fields:
        if name not in FIELDS:
            raise InvalidInput(f"{name!r:.80} is no field of an upload; {hint(name, FIELDS)}")
    given = {name: text for name, text in fields.items() if text}
    suffix = _suffix_of(file_name)
    model_id = given.pop("model_id", "") or stem(PurePath(file_name).name.removesuffix(ARCHIVE))
    overwrite = given.pop("overwrite", "false").lower()
    if overwrite not in _FLAGS:
        raise InvalidInput(f"overwrite must be true or false, not {overwrite!r:.80}")
    return Wish(_good_id(model_id), _FLAGS[overwrite], suffix, _settings(given))


_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


def _suffix_of(file_name: str) -> str:
    name = file_name.lower()
    for suffix in (ARCHIVE, *SUFFIXES):
        if name.endswith(suffix):
            return suffix
    if name.endswith(".json"):  # somebody says that it is a model
        return ".xgb.json"
    raise InvalidInput(
        f"{file_name!r:.120} is no model by its name; supported: {SERVED}; a folder is sent as "
        f"{ARCHIVE}"
    )


def _good_id(given: str) -> str:
    model_id = as_model_id(given)
    why = why_bad_model_id(model_id)
    if model_id.lower() in _OTHERS_PLACES:
        why = "something else has this name in the models folder"
    if why:
        raise InvalidInput(f"{model_id!r:.120} is not a possible model_id: {why}")
    return model_id


def _settings(given: Mapping[str, str]) -> dict[str, Any]:
    try:
        return check_keys(given, _KEYS, str, Path("/"), strict=False)
    except ConfigError as error:
        raise InvalidInput(str(error)) from None
