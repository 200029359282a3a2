"""A process that runs `guest.py`, and the line to it."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from snoozeml.errors import ModelFailed
from snoozeml.worker.engines.python import guest
from snoozeml.worker.engines.python.failures import fail

if TYPE_CHECKING:
    from snoozeml.worker.engines.python.guest import Tensor

_EXIT_TIMEOUT_S: Final = 1.0


class Child:
    """Started in the worker's process group, so that whoever ends the worker ends it as well.

    If it dies, the worker dies of the same: what the daemon sees, logs and counts is then what
    happened to the model.

    Args:
        interpreter: path of a Python interpreter, 3.8 or newer.
        called: what the model's author calls it.
        env: all variables that it gets.

    Raises:
        ModelFailed: it cannot be started, or is no such interpreter.
    """

    def __init__(self, interpreter: str, called: str, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [interpreter, guest.__file__, str(theirs.fileno())]
            try:
                self._process: Final = subprocess.Popen(
                    command, env=env, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
                )
            except OSError as error:
                raise ModelFailed(f"{called} cannot be run: {error.strerror}") from error
        self._sock: Final = ours
        self._channel: Final = guest.Channel(ours)
        threading.Thread(target=self._hang_up_when_it_ends, daemon=True).start()
        try:
            self._channel.receive()
        except (EOFError, OSError):
            status = self._process.wait()
            raise ModelFailed(
                f"{called} ended with status {status} before it ran the model's code; it must be"
                " Python 3.8 or newer; the log has what it said"
            ) from None

    def ask(
        self, header: dict[str, Any], tensors: "Mapping[str, Tensor]", *, loads: bool = False
    ) -> "dict[str, Tensor]":
        """Send a message and wait for the answer.

        Args:
            loads: the message says what to load.

        Raises:
            SnoozeError: the answer is a failure.
        """
        try:
            self._channel.send(header, tensors)
            answer, outputs = self._channel.receive()
        except (EOFError, OSError):
            self._die_of_the_same()
        if "failure" in answer:
            fail(answer["failure"], while_loading=loads)
        return outputs

    def _hang_up_when_it_ends(self) -> None:
        """End every wait for it, even while something that it has started holds the line."""
        self._process.wait()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _die_of_the_same(self) -> NoReturn:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_TIMEOUT_S)
        self._process.kill()  # it has closed the line, and lives
        status = self._process.wait()
        if status < 0:
            signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        os._exit(status if status >= 0 else 1)
