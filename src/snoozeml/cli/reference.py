"""The reference of every command, rendered from the command line itself as Markdown.

`python -m snoozeml.cli.reference` prints it.
"""

import inspect
import sys
from collections.abc import Iterator
from typing import Final

import click

from snoozeml.cli.app import snooze

_HEAD: Final = """\
# The command line

This page is made from the commands themselves (`make docs`); a test keeps the two equal.

Exit codes: 0; 1 for a failure, which a message on standard error explains; 2 for wrong usage.
"""


def render() -> str:
    """One section per command, in the order of `snooze --help`."""
    context = click.Context(snooze, info_name="snooze")
    commands = [snooze.commands[name] for name in snooze.list_commands(context)]
    return "\n".join([_HEAD, *(_section(command, context) for command in commands)])


def _section(command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=command.name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(str(command.help))
    lines = [f"## {context.command_path}", "", f"    {usage}", "", text, ""]
    return "\n".join([*lines, "| Option | Meaning |", "|---|---|", *_rows(command, context), ""])


def _rows(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option):
            names, meaning = option.get_help_record(context) or ("", "")
            yield f"| `{_cell(names)}` | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
