"""Holds a model back, so that what shall meet in its queue does so whatever the machine's pace."""

import os
from pathlib import Path
from typing import Final

from e2e.daemon import Daemon
from e2e.eventually import eventually


class Gate:
    """A pipe that a Python model opens when it loads, which takes until its other end is opened.

    Attributes:
        load: the body of such a model's `load`.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path: Final = path
        self.load: Final = f"open({str(path)!r}).close()"

    def open(self) -> None:
        """Let the model load; waits until it wants to."""
        self._path.open("w").close()


def until_waiting(daemon: Daemon, model_id: str, requests: int) -> None:
    """Return once so many requests wait for a model in the daemon."""
    eventually(
        lambda: daemon.model(model_id)["queue_depth"] == requests, f"{requests} requests wait"
    )
