"""The parsers of the configuration file."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import tomlkit

from fuzz.mutations import Json
from fuzz.subject import Subject, document, json_text, text, weighted
from snoozeml.config.document import read_document
from snoozeml.config.keys import ConfigError
from snoozeml.config.writing import with_entry

_TOML: Final = (
    b"""
[server]
port = 8080
max_memory = "80%"

[defaults]
max_batch_size = 16 # rows

[models.iris]
path = "iris.onnx"
pinned = true

[models."b.c"]
device = "cuda:1"
""",
    b"""
[[models]]
id = "iris"
max_batch_delay_ms = 2.5

[auth]
enabled = true

[[auth.api_keys]]
name = "a"
key_env = "A"
role = "admin"
models = ["b*"]

[auth.jwt]
secret_env = "B"
algorithm = "HS256"
leeway_secs = 60
""",
)


def _reading_document(name: str) -> Callable[[bytes, Path], None]:
    def read(content: bytes, folder: Path) -> None:
        file = folder / name
        file.write_bytes(content)
        read_document(file)

    return read


def _edit(content: bytes, folder: Path) -> None:
    """Write an entry into whatever is a valid file."""
    file = folder / "models.toml"
    file.write_bytes(content)
    before = read_document(file)
    text = file.read_text(encoding="utf-8-sig")
    file.write_text(with_entry(file, text, "new.one", {"pinned": True}), encoding="utf-8")
    after = read_document(file)
    assert after.entries == (*(e for e in before.entries if e.id != "new.one"), after.entries[-1])
    assert after.entries[-1].settings["pinned"] is True


_DOCUMENTS: Final[tuple[Json, ...]] = tuple(tomllib.loads(file.decode()) for file in _TOML)


def _as_toml(damaged: Json) -> bytes:
    try:
        return tomlkit.dumps(damaged).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError):  # what TOML cannot say
        return _TOML[0]


_FILES: Final = weighted((3, document(*_DOCUMENTS).map(_as_toml)), (2, text(*_TOML)))

SUBJECTS: Final = (
    Subject("models.toml", _FILES, _reading_document("models.toml"), (ConfigError,)),
    Subject(
        "models.json", json_text(*_DOCUMENTS), _reading_document("models.json"), (ConfigError,)
    ),
    Subject("edits of models.toml", _FILES, _edit, (ConfigError,)),
)
