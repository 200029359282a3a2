"""A process that runs `guest.py`, and the line to it."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from snoozeml.errors import ModelFailed
from snoozeml.worker import relatives
from snoozeml.worker.engines.python import guest
from snoozeml.worker.engines.python.failures import fail

if TYPE_CHECKING:
    from snoozeml.worker.engines.python.guest import Tensor

_EXIT_TIMEOUT_S: Final = 1.0
_MOST_CONFINED_BYTES: Final = 256 * 2**20  # of one answer, which is whole in our memory


class TooMuch(Exception):
    """More has been said at once than we hold."""


class WaryChannel(guest.Channel):
    """Listens to somebody who need not keep to any measure.

    Args:
        most_bytes: what a message may have; beyond that, `receive` raises TooMuch.
    """

    def __init__(self, sock: socket.socket, most_bytes: int) -> None:
        super().__init__(sock)
        self._most_bytes: Final = most_bytes
        self._left_bytes = most_bytes

    def receive(self) -> "tuple[dict[str, Any], dict[str, Tensor]]":
        self._left_bytes = self._most_bytes
        return super().receive()

    def _exactly(self, length: int) -> bytearray:
        if not 0 <= length <= self._left_bytes:
            raise TooMuch
        self._left_bytes -= length
        return super()._exactly(length)


class Child:
    """Started in the worker's process group, so that whoever ends the worker ends it as well.

    If it dies, the worker dies of the same: what the daemon sees, logs and counts is then what
    happened to the model.

    Args:
        interpreter: path of a Python interpreter, 3.8 or newer.
        called: what the model's author calls it.
        env: all variables that it gets.
        confine: what it does before it becomes the interpreter. Whoever is confined is not trusted
            to keep to the form of messages either.

    Raises:
        ModelFailed: it cannot be started, or is no such interpreter.
    """

    def __init__(
        self,
        interpreter: str,
        called: str,
        env: Mapping[str, str],
        confine: Callable[[], None] | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [interpreter, guest.__file__, str(theirs.fileno())]
            try:
                self._process: Final = subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    preexec_fn=confine,
                )
            except OSError as error:
                raise ModelFailed(f"{called} cannot be run: {error.strerror}") from error
            except subprocess.SubprocessError as error:
                raise ModelFailed(f"{called} cannot be confined; the log says why") from error
        self._sock: Final = ours
        self._channel: Final = (
            guest.Channel(ours) if confine is None else WaryChannel(ours, _MOST_CONFINED_BYTES)
        )
        try:
            self._channel.receive()
        except (EOFError, OSError):
            status = self._process.wait()
            raise ModelFailed(
                f"{called} ended with status {status} before it ran the model's code; it must be"
                " Python 3.8 or newer; the log has what it said"
            ) from None
        self._watch: Final = threading.Thread(target=self._die_of_the_same, daemon=True)
        self._watch.start()

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
            self._die_with_it()
        except TooMuch:
            sys.stderr.write("the model sent more than a confined one may\n")
            os._exit(1)  # of its own accord, as far as anybody can tell
        if "failure" in answer:
            fail(answer["failure"], while_loading=loads)
        return outputs

    def _die_with_it(self) -> NoReturn:
        """The line has gone; so the process has, or it will."""
        self._watch.join(_EXIT_TIMEOUT_S)
        self._process.kill()
        self._watch.join()
        raise AssertionError("the watch ends this process")

    def _die_of_the_same(self) -> None:
        """Wait until it ends, asked or not, and even while something it started holds the line."""
        status = self._process.wait()
        if relatives.are_ending():
            return  # the worker leaves, in its own way
        if status < 0:
            os.kill(os.getpid(), -status)
            time.sleep(_EXIT_TIMEOUT_S)  # unless the signal is one that Python does not die of
        os._exit(status if status >= 0 else 1)
