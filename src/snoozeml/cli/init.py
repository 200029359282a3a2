"""`snooze init`: a configuration file to start from."""

import shlex
from pathlib import Path
from typing import Final

import click

_DEFAULT_DIR: Final = Path("models")


@click.command()
@click.option(
    "--models-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    envvar="SNOOZE_MODELS_DIR",
    show_envvar=True,
    default=_DEFAULT_DIR,
    show_default=True,
    help="The models folder; it is made if it is missing.",
)
@click.option("--force", is_flag=True, help="Replace a models.toml that is there already.")
def init(models_dir: Path, force: bool) -> None:
    """Write a commented models.toml for the models in a folder."""
    from snoozeml.cli.starter import starter_file
    from snoozeml.config.discovery import discover
    from snoozeml.config.loading import ConfigError
    from snoozeml.config.matching import match
    from snoozeml.config.overlooked import overlooked

    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        models = match(discover(models_dir), ())
        ids = [model.id for model in models]
        written = _write(models_dir, starter_file(ids), force)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{models_dir}: {error.strerror}") from error
    click.echo(f"Wrote {written} for {_listed(ids)}.")
    for hint in overlooked(models_dir, {model.path for model in models}):
        click.echo(f"{hint}.")
    _tell_next(models_dir, ids)


def _write(folder: Path, text: str, force: bool) -> Path:
    """Raises: ClickException: a configuration is there already, and may be somebody's work."""
    other = folder / "models.json"
    if other.exists():
        raise click.ClickException(f"{other} is this folder's configuration; only one can count")
    path = folder / "models.toml"
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{path} exists already; --force replaces it") from None
    return path


def _listed(ids: list[str]) -> str:
    match len(ids):
        case 0:
            return "no models yet"
        case 1:
            return f"one model: {ids[0]}"
        case count:
            return f"{count} models: {', '.join(sorted(ids))}"


def _tell_next(folder: Path, ids: list[str]) -> None:
    where = "" if folder == _DEFAULT_DIR else f" --models-dir {shlex.quote(str(folder))}"
    if not ids:
        from snoozeml.config.discovery import SERVED

        click.echo(f"Next: put models into {folder}: {SERVED}")
    click.echo(f"{'Then' if not ids else 'Next'}: snooze serve{where}")
