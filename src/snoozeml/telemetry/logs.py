"""Log lines: for people on a terminal, JSON for everything else.

A record's own fields travel in `extra={"fields": {...}}`. On a terminal they follow the message as
`key=value`; in JSON they are keys beside `ts`, `level`, `logger` and `event`.
"""

import contextlib
import logging
import logging.handlers
import os
import queue
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from snoozeml.errors import printable

_LONGEST_BACKLOG_BYTES = 16 * 2**20
_RECORD_BYTES = 1024  # of a record without its message
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


class _Backlog:
    """What has been said and not been written yet; what does not fit is only counted.

    Attributes:
        records: None says that there will be no more.
    """

    def __init__(self) -> None:
        self.records: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        # Each of these is changed by one side only, so no lock is needed for the two.
        self._put_bytes = self._written_bytes = 0
        self._dropped = self._told = 0
        self._told_at = 0.0

    def put(self, record: logging.LogRecord) -> None:
        """Add a record; never waits."""
        after = self._put_bytes + _size(record)
        if after - self._written_bytes > _LONGEST_BACKLOG_BYTES:
            self._dropped += 1
        else:
            self._put_bytes = after
            self.records.put(record)

    def written(self, record: logging.LogRecord) -> None:
        """Make room: the record has been written."""
        self._written_bytes += _size(record)

    def untold(self) -> int:
        """How many have been dropped, if it is time to say so: here, or once a second."""
        missing, now = self._dropped - self._told, time.monotonic()
        if not missing or (now < self._told_at + _SELDOM_S and not self.records.empty()):
            return 0
        self._told += missing
        self._told_at = now
        return missing


def _size(record: logging.LogRecord) -> int:
    return _RECORD_BYTES + len(record.msg)


class _Writer(logging.handlers.QueueListener):
    """Writes records in a thread of its own: whoever reads our output may stall, we may not."""

    def __init__(self, backlog: _Backlog, handler: logging.Handler) -> None:
        super().__init__(backlog.records, handler)
        self._backlog = backlog

    def handle(self, record: logging.LogRecord) -> None:
        super().handle(record)
        self._backlog.written(record)
        if dropped := self._backlog.untold():
            note = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
            why = "log records were dropped: they came faster than they could be written"
            super().handle(logging.makeLogRecord(note | {"msg": why, "fields": {"count": dropped}}))


class _Enqueue(logging.handlers.QueueHandler):
    """Hands records to the writer."""

    def __init__(self, backlog: _Backlog) -> None:
        super().__init__(backlog.records)
        self._backlog = backlog

    def enqueue(self, record: logging.LogRecord) -> None:
        self._backlog.put(record)

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Nothing has to be made fit for travel, but what it says must have a size."""
        record.msg, record.args = record.getMessage(), None
        return record


def configure(form: Format, level: str) -> Callable[[], None]:
    """Send every log record of this process to standard error.

    Returns:
        call it last: waits a moment for what has not been written yet.
    """
    human = form == "human" or (form == "auto" and os.isatty(_STDERR))
    handler = _FileDescriptor(_STDERR)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    backlog = _Backlog()
    writer = _Writer(backlog, handler)
    logging.basicConfig(handlers=[_Enqueue(backlog)], level=level.upper(), force=True)
    # Libraries speak up only when something is wrong; what is worth a line we log ourselves.
    for name in ("asyncio", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Without descriptors it cannot accept clients, and says so twenty times a second.
    logging.getLogger("pygrpc_native.server").addFilter(Seldom())
    writer.start()

    def finish() -> None:
        backlog.records.put(None)
        if writer._thread is not None:
            writer._thread.join(_LAST_WORDS_S)

    return finish
