"""`snooze serve`: the flags of the daemon."""

import os
import sys
from pathlib import Path
from typing import Any

import click

_SERVER_EXTRA = "the daemon's libraries are not installed: pip install 'snoozeml[server]'"


def _open_descriptor(_ctx: click.Context, _param: click.Parameter, fd: int | None) -> int | None:
    if fd is not None:
        try:
            os.fstat(fd)
        except (OSError, OverflowError):
            raise click.BadParameter(f"no descriptor {fd} is open") from None
    return fd


@click.command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on. [default: 127.0.0.1]")
@click.option(
    "--port",
    type=int,
    metavar="PORT",
    help="Port to listen on; 0 takes a free one. [default: 8080]",
)
@click.option(
    "--grpc-port",
    type=int,
    metavar="PORT",
    help="Port to serve gRPC on; 0 takes a free one. [default: 50051]",
)
@click.option("--no-grpc", is_flag=True, help="Do not serve gRPC.")
@click.option(
    "--models-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder that the models lie in. [default: models]",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file. [default: models.toml or models.json in the models folder]",
)
@click.option(
    "--max-batch-size",
    type=int,
    metavar="ROWS",
    help="The most rows that run at once, for every model. [default: 16]",
)
@click.option(
    "--max-delay-ms",
    "max_batch_delay_ms",
    type=float,
    metavar="MS",
    help="The longest that a request waits for company, for every model. [default: 10]",
)
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="ROLE:KEY",
    help="Ask for credentials, and take this key; may be repeated. Every user of this machine can "
    "see it in the list of processes: SNOOZE_API_KEYS is better.",
)
@click.option(
    "--jwt-secret",
    metavar="SECRET",
    help="Ask for credentials, and take tokens signed with this. Seen as --api-key is: "
    "SNOOZE_JWT_SECRET is better.",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve with TLS, and this certificate (PEM).",
)
@click.option(
    "--tls-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The certificate's private key (PEM).",
)
@click.option(
    "--log-format",
    metavar="auto|human|json",
    help="`auto` writes for people on a terminal and JSON otherwise. [default: auto]",
)
@click.option(
    "--log-level",
    metavar="debug|info|warning|error",
    help="The least important messages that are logged. [default: info]",
)
@click.option(
    "--ready-fd",
    type=int,
    metavar="FD",
    callback=_open_descriptor,
    help="Write one line of JSON to this descriptor when the daemon serves: where it "
    "listens, and its process id.",
)
def serve(
    ready_fd: int | None,
    no_grpc: bool,
    api_keys: tuple[str, ...],
    jwt_secret: str | None,
    **flags: Any,
) -> None:
    """Run the daemon.

    It stops in order at SIGTERM or Ctrl-C, or when its terminal closes: no request that it accepted
    is lost. SIGHUP makes it look at its configuration, keys, certificate and models again, as
    `snooze reload` does.
    What a flag sets can also be set in the environment (SNOOZE_PORT, ...) or in models.toml; the
    flag wins.
    """
    try:
        from snoozeml import daemon
        from snoozeml.config.auth import AuthFlags
        from snoozeml.config.loading import ConfigError, FlagError, Overrides
        from snoozeml.core.secret import Secret
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("snoozeml"):
            raise  # our own mistake, and no library's absence
        raise click.ClickException(f"{_SERVER_EXTRA} ({error.name} is missing)") from error
    secret = None if jwt_secret is None else Secret(jwt_secret)
    auth = AuthFlags(api_keys=tuple(map(Secret, api_keys)), jwt_secret=secret)
    try:
        overrides = Overrides(auth=auth, grpc=False if no_grpc else None, **flags)
        code = daemon.run(overrides, ready_fd)
    except FlagError as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(_plainly(error)) from error
    sys.exit(code)


def _plainly(error: OSError) -> str:
    """What the system said, without its number."""
    said = error.strerror or str(error)
    return f"{said}: {error.filename}" if error.filename else said
