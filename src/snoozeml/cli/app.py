"""The command line's root."""

import io
import sys

import click

from snoozeml import __version__
from snoozeml.cli import control
from snoozeml.cli.init import init
from snoozeml.cli.serve import serve
from snoozeml.cli.upload import upload


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="snooze")
def snooze() -> None:
    """Serve models that sleep until somebody asks.

    `snooze serve` is the daemon. The other commands talk to a running one, or prepare for it.
    """


for command in (serve, init, control.status, control.load, control.unload, control.pin,
                control.unpin, control.refresh, control.reload, upload):  # fmt: skip
    snooze.add_command(command)


def main() -> None:
    """Run the command in `sys.argv`; the process exits with 0, 1 (a failure) or 2 (wrong usage)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a Latin-1 terminal, a Japanese model
    snooze(prog_name="snooze")
