"""The reference of every key, rendered from the schema as Markdown.

`python -m snoozeml.config.reference` prints it.
"""

import sys
from typing import Final

from msgspec.structs import FieldInfo

from snoozeml.config.keys import (
    API_KEY_KEYS,
    AUTH_KEYS,
    DEFAULTS_KEYS,
    JWT_KEYS,
    MODEL_KEYS,
    OUTER_KEYS,
    SERVER_KEYS,
    Keys,
    expected,
    metadata,
)

_HEAD: Final = "| Key | Value | Unit | Default | Meaning |\n|---|---|---|---|---|\n"


def render() -> str:
    """All keys, in one table for each set of places where they may stand."""
    shared = {key: field for key, field in DEFAULTS_KEYS.items() if key in MODEL_KEYS}
    sections = {
        "In `[server]`": SERVER_KEYS,
        'In `[defaults]` and in a model\'s own table, `[models."its id"]`': shared,
        "Only in `[defaults]`": _rest(DEFAULTS_KEYS, MODEL_KEYS),
        "Only in a model's own table": _rest(MODEL_KEYS, DEFAULTS_KEYS),
        "In `[auth]`": AUTH_KEYS,
        "In each `[[auth.api_keys]]`": API_KEY_KEYS,
        "In `[auth.jwt]`": JWT_KEYS,
        "Only as a flag or a variable": _rest(OUTER_KEYS, {**SERVER_KEYS, **DEFAULTS_KEYS}),
    }
    return "\n".join(f"### {title}\n\n{_table(keys)}" for title, keys in sections.items())


def _rest(keys: Keys, without: Keys) -> Keys:
    return {key: field for key, field in keys.items() if key not in without}


def _table(keys: Keys) -> str:
    return _HEAD + "".join(_row(field) for field in keys.values())


def _row(field: FieldInfo) -> str:
    info = metadata(field)
    extra = info.extra or {}
    default = extra.get("default") or _plain(field.default)
    meaning = (info.extra_json_schema or {})["description"]
    cells = (f"`{field.name}`", expected(field), extra.get("unit", ""), default, meaning)
    return f"| {' | '.join(cells)} |\n"


def _plain(default: object) -> str:
    """A default as one would write it."""
    match default:
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
        case "":
            return "empty"
        case _:
            return str(default)


if __name__ == "__main__":
    sys.stdout.write(render())
