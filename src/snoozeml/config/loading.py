"""From flags, environment and files to one resolved configuration."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from snoozeml.config.auth import AuthFlags, resolve
from snoozeml.config.discovery import Found, discover
from snoozeml.config.document import Document, Entry, read_document
from snoozeml.config.keys import OUTER_KEYS, ConfigError, FlagError, absolute, check_keys
from snoozeml.config.matching import Match, match
from snoozeml.config.overlooked import overlooked
from snoozeml.config.schema import Configuration, ModelConfig, ServerConfig, Written

__all__ = ["ConfigError", "FlagError", "Overrides", "load"]

_IN_MODELS_DIR: Final = ("models.toml", "models.json")
_FLAGS: Final = {
    "config_path": "--config",
    "grpc": "--no-grpc",
    "max_batch_delay_ms": "--max-delay-ms",
}


class Overrides(Struct, frozen=True, kw_only=True):
    """What the flags of `snooze serve` may set; None: not given. Checked by `load`."""

    host: str | None = None
    port: int | None = None
    grpc: bool | None = None
    grpc_port: int | None = None
    models_dir: Path | None = None
    config_path: Path | None = None
    max_batch_size: int | None = None
    max_batch_delay_ms: float | None = None
    log_format: str | None = None
    log_level: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    auth: AuthFlags = AuthFlags()


def models_dir(overrides: Overrides, environ: Mapping[str, str]) -> Path:
    """Where the models are, without a look at them. Raises like `load`."""
    base = Path.cwd()
    outer = _from_environment(environ, base) | _from_flags(overrides, base)
    return _models_dir(_find_document(outer, base).server | outer, base)


def load(
    overrides: Overrides, environ: Mapping[str, str], uploaded: Collection[Written] = ()
) -> Configuration:
    """Read everything and resolve it: flag, environment, model entry, `[defaults]`, built-in.

    Reads files and changes nothing, so it may be called again to see what has changed. Relative
    paths in flags and variables start from the working directory, those in a file from its folder.

    Args:
        uploaded: entries as uploads wrote them; one of these may be without a model.

    Raises:
        FlagError: the value of a flag is not what it must be.
        ConfigError: something else is not as it must be.
    """
    base = Path.cwd()
    outer = _from_environment(environ, base) | _from_flags(overrides, base)
    document = _find_document(outer, base)
    server = _server(outer, document, environ, base)
    found = discover(server.models_dir)
    orphans = _orphans(document.entries, found, uploaded)
    entries = [entry for entry in document.entries if (entry.id, entry.settings) not in orphans]
    models = [_model(each, document.defaults, outer) for each in match(found, entries)]
    return Configuration(
        server=server,
        models=tuple(sorted(models, key=lambda model: model.id)),
        auth=resolve(document.auth, overrides.auth, environ),
        overlooked=overlooked(server.models_dir, {model.path for model in models}),
        orphans=orphans,
    )


def _orphans(
    entries: Sequence[Entry], found: Sequence[Found], uploaded: Collection[Written]
) -> tuple[Written, ...]:
    ids = {model.id for model in found}
    written = [(entry.id, entry.settings) for entry in entries if entry.id not in ids]
    return tuple(entry for entry in written if entry in uploaded)


def _from_flags(overrides: Overrides, base: Path) -> dict[str, Any]:
    flags = structs.asdict(overrides)
    del flags["auth"]  # which `resolve` checks
    given = {key: value for key, value in flags.items() if value is not None}
    try:
        return check_keys(given, OUTER_KEYS, _flag, base)
    except ConfigError as error:
        raise FlagError(str(error)) from error


def _flag(key: str) -> str:
    return _FLAGS.get(key) or f"--{key.replace('_', '-')}"


def _from_environment(environ: Mapping[str, str], base: Path) -> dict[str, Any]:
    """Variables that are not ours are let alone; an empty one counts as not set."""
    given = {key: text for key in OUTER_KEYS if (text := environ.get(_variable(key)))}
    return check_keys(given, OUTER_KEYS, _variable, base, strict=False)


def _variable(key: str) -> str:
    return f"SNOOZE_{key.upper()}"


def _find_document(outer: Mapping[str, Any], base: Path) -> Document:
    if "config_path" in outer:
        return read_document(outer["config_path"])
    folder = _models_dir(outer, base)
    # A link that leads nowhere counts too: somebody meant a file to be there.
    present = [path for name in _IN_MODELS_DIR if os.path.lexists(path := folder / name)]
    if not present:
        return Document()
    if len(present) > 1:
        both = " and ".join(map(str, present))
        raise ConfigError(f"{both}: only one of them can count; remove one, or use --config")
    document = read_document(absolute(present[0], base))
    if "models_dir" in document.server:
        raise ConfigError(
            f"{document.path}: server.models_dir: this file was found in the models folder, so it "
            "cannot move it; use --models-dir, or name the file with --config"
        )
    return document


def _models_dir(settings: Mapping[str, Any], base: Path) -> Path:
    folder: Path = settings.get("models_dir", base / "models")
    return folder


def _server(
    outer: dict[str, Any], document: Document, environ: Mapping[str, str], base: Path
) -> ServerConfig:
    settings = document.defaults | document.server | outer
    given = {key: settings[key] for key in ServerConfig.__struct_fields__ if key in settings}
    given["config_path"] = document.path
    given["models_dir"] = _models_dir(given, base)
    if "cache_dir" not in given:
        given["cache_dir"] = _default_cache_dir(environ)
    _check_tls(given)
    return ServerConfig(**given)


def _check_tls(given: Mapping[str, Any]) -> None:
    if ("tls_cert" in given) != ("tls_key" in given):
        raise ConfigError("tls_cert and tls_key belong together: a certificate, and its key")
    if "tls_client_ca" in given and "tls_cert" not in given:
        raise ConfigError("tls_client_ca works only beside tls_cert and tls_key")


def _default_cache_dir(environ: Mapping[str, str]) -> Path:
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():  # the XDG specification says to ignore it otherwise
        return shared / "snoozeml"
    try:
        return Path.home() / ".cache" / "snoozeml"
    except RuntimeError as error:
        raise ConfigError(f"SNOOZE_CACHE_DIR: must be set, for {error}") from error


def _model(found: Match, defaults: Mapping[str, Any], outer: Mapping[str, Any]) -> ModelConfig:
    own = {} if found.entry is None else found.entry.settings
    settings = {**defaults, **own, **outer}
    given = {key: settings[key] for key in ModelConfig.__struct_fields__ if key in settings}
    given.update(id=found.id, path=found.path, format=found.format)
    return ModelConfig(**given)
