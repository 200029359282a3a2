"""The configuration file that `snooze init` writes."""

import json
import textwrap
from collections.abc import Iterable
from typing import Final

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from snoozeml.config.keys import DEFAULTS_KEYS, SERVER_KEYS, metadata

_HEAD: Final = """\
# SnoozeML's configuration. Nothing here is needed: models in this folder are found by themselves,
# and a line that is commented out shows the default. Flags and SNOOZE_* variables win over it.
# What has no default, such as TLS and keys, is in docs/configuration.md.
"""
_MODELS: Final = """\
# One table per model: whatever [defaults] may hold, and a description. One for a file that lies
# elsewhere names it with `path`. One with the `path` of a model that lies here gives it another id,
# in place of its own: to serve it under both, give each of them a table with that `path`.
"""


def starter_file(model_ids: Iterable[str]) -> str:
    """A `models.toml` that changes nothing yet and explains each setting that has a default."""
    settings = [_HEAD, "[server]", *_commented(SERVER_KEYS.values())]
    settings += ["", "[defaults]", *_commented(DEFAULTS_KEYS.values()), "", _MODELS]
    return "\n".join([*settings, *map(_model, model_ids)])


def _model(model_id: str) -> str:
    return f'[models.{_toml(model_id)}]\n# description = ""\n# pinned = false\n'


def _commented(fields: Iterable[FieldInfo]) -> list[str]:
    """Each setting that has a plain default, under its description."""
    lines = []
    for field in fields:
        if field.default is not NODEFAULT and field.default is not None:
            lines += textwrap.wrap(
                _description(field), 97, initial_indent="# ", subsequent_indent="# "
            )
            lines.append(f"# {field.name} = {_toml(field.default)}")
    return lines


def _description(field: FieldInfo) -> str:
    return str((metadata(field).extra_json_schema or {})["description"])


def _toml(value: object) -> str:
    """A TOML value; for text, numbers and truth JSON writes it the same way."""
    return json.dumps(value, ensure_ascii=False)
