"""The `snooze` command.

Whatever a command alone needs is imported inside it. The control commands must answer at once, and
`snooze serve` becomes the daemon: what it imports stays in memory for as long as the daemon runs.
"""

from snoozeml.cli.app import main

__all__ = ["main"]
