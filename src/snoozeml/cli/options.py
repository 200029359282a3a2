"""Options that the control commands share."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

DEFAULT_ENDPOINT: Final = "http://127.0.0.1:8080"
_DAY_S: Final = 86_400  # a limit only because sockets have one

Command: TypeAlias = Callable[..., None]
_Decorator: TypeAlias = Callable[[Command], Command]


def asks_daemon(*, timeout_s: int) -> _Decorator:
    """Let the user say which daemon to ask; the command receives it as `daemon: Endpoint`."""
    options = (
        click.option("--endpoint", metavar="URL", envvar="SNOOZE_ENDPOINT", show_envvar=True,
                     default=DEFAULT_ENDPOINT, show_default=True, help="The daemon to ask."),
        click.option("--api-key", metavar="KEY", envvar="SNOOZE_API_KEY", show_envvar=True,
                     callback=_checked_key, help="Sent as a bearer token."),
        click.option("--timeout", metavar="SECONDS", type=float, callback=_checked_span,
                     default=timeout_s, show_default=True, help="How long to wait."),
        _file("--ca-cert", "SNOOZE_CA_CERT",
              "Trust the certificates in this file (PEM) instead of those that the system trusts."),
        _file("--client-cert", "SNOOZE_CLIENT_CERT",
              "The certificate to show a daemon with TLS that asks for one (PEM)."),
        _file("--client-key", "SNOOZE_CLIENT_KEY",
              "Its private key (PEM), where that is in another file."),
    )  # fmt: skip

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_daemon(endpoint: str, api_key: str | None, timeout: float, **rest: Any) -> None:
            from snoozeml.cli.endpoint import Endpoint
            from snoozeml.cli.tls import ClientTls

            tls = ClientTls(**{field: rest.pop(field) for field in ClientTls._fields})
            if tls.client_key is not None and tls.client_cert is None:
                raise click.UsageError("--client-key belongs to a --client-cert; name that, too.")
            try:
                daemon = Endpoint(endpoint, api_key, timeout, tls)
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint="'--endpoint'") from None
            command(daemon=daemon, **rest)

        return _apply(options, with_daemon)

    return decorate


def names_model(*, required: bool) -> _Decorator:
    """Let the user name a model, with `--model-id` or bare; the command receives `model_id`."""
    options = (
        click.argument("model", required=False, metavar="[ID]"),
        click.option("--model-id", metavar="ID", help="The model; the bare ID means the same."),
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_model(model: str | None, model_id: str | None, **rest: Any) -> None:
            if model is not None and model_id is not None:
                raise click.UsageError("Name the model once: as --model-id ID or as a bare ID.")
            named = model if model_id is None else model_id
            if named == "" or (named is None and required):
                raise click.UsageError("Name a model; `snooze status` lists them.")
            command(model_id=named, **rest)

        return _apply(options, with_model)

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")


def print_json(answer: Any) -> None:
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def _file(name: str, variable: str, meaning: str) -> _Decorator:
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option(
        name, type=kind, metavar="FILE", envvar=variable, show_envvar=True, help=meaning
    )


def _apply(options: tuple[_Decorator, ...], command: Command) -> Command:
    for option in reversed(options):  # decorators nest: the last one applied is listed first
        command = option(command)
    return command


def _checked_key(_ctx: click.Context, _param: click.Parameter, key: str | None) -> str | None:
    """Refuse what cannot stand in a header, without repeating the secret on the screen."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise click.BadParameter("an API key is made of printable ASCII characters")
    return key


def _checked_span(_ctx: click.Context, _param: click.Parameter, seconds: float) -> float:
    if not 0 < seconds <= _DAY_S:  # not a number is refused here too
        raise click.BadParameter("it must be above 0 and at most a day")
    return seconds
