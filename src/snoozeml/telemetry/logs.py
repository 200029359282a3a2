"""Log lines: for people on a terminal, JSON for everything else.

A record's own fields travel in `extra={"fields": {...}}`. On a terminal they follow the message as
`key=value`; in JSON they are keys beside `ts`, `level`, `logger` and `event`.
"""

import contextlib
import logging
import logging.handlers
import os
import queue
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from snoozeml.errors import printable

_LONGEST_BACKLOG = 10_000  # records
_LAST_WORDS_S = 1.0
_STDERR = 2
_SELDOM_S = 1.0

Format = Literal["auto", "human", "json"]


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


class HumanFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        line = f"{clock} {record.levelname:<7} {record.getMessage()} {fields}".rstrip()
        line = printable(line)  # it may hold what a client, a file or a model has said
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


class Seldom(logging.Filter):
    """Lets the same message through once a second, however often a library says it."""

    def __init__(self) -> None:
        super().__init__()
        self._message = ""
        self._at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if message == self._message and record.created < self._at + _SELDOM_S:
            return False
        self._message, self._at = message, record.created
        return True


class _NoLock(contextlib.nullcontext[None]):
    def acquire(self) -> None: ...

    def release(self) -> None: ...


class _FileDescriptor(logging.Handler):
    """Writes to a descriptor with nothing between.

    Python's own streams hold a lock while they write, and want it again when the process ends: with
    a reader that stalls, that would be never.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def createLock(self) -> None:  # noqa: N802  logging's name
        # Only the writer's thread comes here.
        self.lock = _NoLock()  # type: ignore[assignment]

    def emit(self, record: logging.LogRecord) -> None:
        rest = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):  # whoever read it has gone
            while rest:
                rest = rest[os.write(self._fd, rest) :]


class _Writer(logging.handlers.QueueListener):
    """Writes records in a thread of its own: whoever reads our output may stall, we may not."""

    def __init__(self, handler: logging.Handler) -> None:
        self.backlog: queue.Queue[logging.LogRecord | None] = queue.Queue(_LONGEST_BACKLOG)
        super().__init__(self.backlog, handler)


class _Enqueue(logging.handlers.QueueHandler):
    """Hands records to the writer; drops them while it cannot keep up."""

    def enqueue(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # it stays in this process, so nothing has to be made fit for travel


def configure(form: Format, level: str) -> Callable[[], None]:
    """Send every log record of this process to standard error.

    Returns:
        call it last: waits a moment for what has not been written yet.
    """
    human = form == "human" or (form == "auto" and os.isatty(_STDERR))
    handler = _FileDescriptor(_STDERR)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    writer = _Writer(handler)
    logging.basicConfig(handlers=[_Enqueue(writer.backlog)], level=level.upper(), force=True)
    # Libraries speak up only when something is wrong; what is worth a line we log ourselves.
    for name in ("asyncio", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Without descriptors it cannot accept clients, and says so twenty times a second.
    logging.getLogger("pygrpc_native.server").addFilter(Seldom())
    writer.start()

    def finish() -> None:
        with contextlib.suppress(queue.Full):
            writer.backlog.put_nowait(None)
        if writer._thread is not None:
            writer._thread.join(_LAST_WORDS_S)

    return finish
