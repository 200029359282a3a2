"""Log lines: for people on a terminal, JSON for everything else.

A record's own fields travel in `extra={"fields": {...}}`. On a terminal they follow the message as
`key=value`; in JSON they are keys beside `ts`, `level`, `logger` and `event`.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import msgspec

Format = Literal["auto", "human", "json"]


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


class HumanFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        line = f"{clock} {record.levelname:<7} {record.getMessage()} {fields}".rstrip()
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


def configure(form: Format, level: str) -> None:
    """Send every log record of this process to standard error."""
    human = form == "human" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # Libraries speak up only when something is wrong; what is worth a line we log ourselves.
    for name in ("asyncio", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
