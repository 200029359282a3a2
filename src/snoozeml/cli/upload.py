"""`snooze upload`: sends a model to a running daemon."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from snoozeml.cli.options import as_json, asks_daemon, print_json

if TYPE_CHECKING:
    from snoozeml.cli.endpoint import Endpoint
    from snoozeml.cli.forms import Form

_CHECK_S: Final = 900  # the daemon prepares the model before it answers
_NOT_PART: Final = "__pycache__"


@click.command()
@click.argument("source", metavar="FILE|FOLDER", type=click.Path(exists=True, path_type=Path))
@click.option("--model-id", metavar="ID", help="What to call it. [default: the file's name]")
@click.option("--overwrite", is_flag=True, help="Replace the model that has this id.")
@click.option("--pin", "pinned", is_flag=True, help="Keep it loaded, however long nobody asks.")
@click.option("--description", metavar="TEXT", help="Shown beside the model; for people.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of it, such as max_batch_size=64; may be given several times.",
)
@asks_daemon(timeout_s=_CHECK_S)
@as_json
def upload(
    daemon: "Endpoint", source: Path, settings: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Send a model to the daemon: a file, a zip archive, or a folder.

    It is checked before it counts, and kept with its settings. One that replaces another takes over
    without a failed request.
    """
    fields = dict(map(_setting, settings)) | _given(options)
    if source.is_dir():
        fields.setdefault("model_id", source.resolve().name)
    try:
        model = daemon.upload(_form(source, fields))
    except _Unreadable as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(model)
    else:
        click.echo(
            f"{model.get('id')} is {model.get('state')}; its format is {model.get('format')}"
        )


class _Unreadable(Exception):
    """A file of the model cannot be read."""


def _given(options: dict[str, Any]) -> dict[str, str]:
    """The options that were given, as fields of the form."""
    given = {name: value for name, value in options.items() if value not in (None, False)}
    return {name: "true" if value is True else str(value) for name, value in given.items()}


def _setting(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="'--set'")
    return key, value


def _form(source: Path, fields: dict[str, str]) -> "Form":
    from snoozeml.cli.forms import form_of_file, form_of_folder

    if not source.is_dir():
        form, size_bytes = form_of_file(source, fields), source.stat().st_size
    else:
        files = _files(source)
        form = form_of_folder(files, fields)
        size_bytes = sum(file.stat().st_size for file in files.values())
    return form._replace(pieces=_shown(form.pieces, size_bytes))


def _files(folder: Path) -> dict[str, Path]:
    """The files of a model's folder, hidden ones left out, by their paths in it."""
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {str(name): path for name, path in found.items() if _is_part(name)}
    if not files:
        raise click.ClickException(f"{folder} holds no files")
    return files


def _is_part(name: Path) -> bool:
    return not any(part.startswith(".") or part == _NOT_PART for part in name.parts)


def _shown(pieces: Iterator[bytes], size_bytes: int) -> Iterator[bytes]:
    """The same pieces, with a bar on a terminal that shows how many have been sent."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        length=size_bytes, label="Sending", file=sys.stderr, hidden=hidden
    ) as bar:
        while True:
            try:
                piece = next(pieces, None)
            except OSError as error:  # or it would be taken for the connection's
                raise _Unreadable(f"{error.filename}: {error.strerror}") from error
            if piece is None:
                return
            yield piece
            bar.update(len(piece))
