"""The commands that talk to a running daemon."""

from typing import TYPE_CHECKING, Any, Final

import click

from snoozeml.cli.options import as_json, asks_daemon, names_model, print_json
from snoozeml.cli.units import human_bytes

if TYPE_CHECKING:
    from snoozeml.cli.endpoint import Endpoint

_LOOK_S: Final = 10  # a daemon that lives tells its state within milliseconds
_CHANGE_S: Final = 300  # a first load prepares the model; an unload waits for work in flight
_CHANGES: Final = {
    "added": "added",
    "removed": "removed",
    "changed": "changed",
    "needs_restart": "changed in [server], for the next start",
}


@click.command()
@names_model(required=False)
@asks_daemon(timeout_s=_LOOK_S)
@as_json
def status(daemon: "Endpoint", model_id: str | None, as_json: bool) -> None:
    """Show the models and what they are doing, or one model in detail."""
    if model_id is None:
        _show_models(daemon.models(), daemon.models_dir, as_json)
    else:
        _show_model(daemon.model(model_id), as_json)


@click.command()
@names_model(required=True)
@click.option("--pin", is_flag=True, help="And keep it loaded, however long nobody asks.")
@asks_daemon(timeout_s=_CHANGE_S)
@as_json
def load(daemon: "Endpoint", model_id: str, pin: bool, as_json: bool) -> None:
    """Wake a model now, so that its next request finds it ready."""
    _act(daemon, model_id, "pin" if pin else "load", as_json)


@click.command()
@names_model(required=True)
@asks_daemon(timeout_s=_CHANGE_S)
@as_json
def unload(daemon: "Endpoint", model_id: str, as_json: bool) -> None:
    """Put a model to sleep once its work in flight is done."""
    _act(daemon, model_id, "unload", as_json)


@click.command()
@names_model(required=True)
@asks_daemon(timeout_s=_CHANGE_S)
@as_json
def pin(daemon: "Endpoint", model_id: str, as_json: bool) -> None:
    """Wake a model and keep it loaded, however long nobody asks."""
    _act(daemon, model_id, "pin", as_json)


@click.command()
@names_model(required=True)
@asks_daemon(timeout_s=_CHANGE_S)
@as_json
def unpin(daemon: "Endpoint", model_id: str, as_json: bool) -> None:
    """Let a pinned model sleep again when nobody asks."""
    _act(daemon, model_id, "unpin", as_json)


@click.command()
@asks_daemon(timeout_s=_LOOK_S)
@as_json
def refresh(daemon: "Endpoint", as_json: bool) -> None:
    """Have the daemon look into its models folder again.

    It reads its whole configuration again, as with `snooze reload`, and tells which models there
    are now.
    """
    answer = daemon.refresh()
    _show_models(answer["models"], daemon.models_dir, as_json)
    if not as_json:
        _tell_changes(answer)


@click.command()
@asks_daemon(timeout_s=_LOOK_S)
def reload(daemon: "Endpoint") -> None:
    """Have the daemon read its configuration again.

    Models and their settings, API keys, the secret and rules of tokens, and the files of TLS take
    effect; other settings in [server] do at the next start. If anything is wrong, nothing changes.
    """
    answer = daemon.refresh()
    count = len(answer["models"])
    click.echo(f"reloaded; {count} {'model' if count == 1 else 'models'}")
    _tell_changes(answer)


def _act(daemon: "Endpoint", model_id: str, action: str, as_json: bool) -> None:
    answer = daemon.act(model_id, action)
    if as_json:
        print_json(answer)
        return
    freed = answer.get("freed_bytes")
    gave_back = f"; it gave back {human_bytes(freed)}" if freed else ""
    click.echo(f"{answer.get('model_id', model_id)} is {answer.get('status')}{gave_back}")


def _tell_changes(answer: dict[str, Any]) -> None:
    for key, what in _CHANGES.items():
        if names := answer.get(key):
            click.echo(f"{what}: {', '.join(map(str, names))}")


def _show_models(models: list[dict[str, Any]], folder: str | None, as_json: bool) -> None:
    if as_json:
        print_json(models)
        return
    from snoozeml.cli.tables import print_models

    if models:
        print_models(models)
    else:
        where = folder or "the models folder"
        click.echo(f"No models yet. Put one into {where}, then run `snooze refresh`.")


def _show_model(model: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(model)
        return
    from snoozeml.cli.tables import print_model

    print_model(model)
