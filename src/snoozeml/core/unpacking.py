"""What the daemon asks of a process that unpacks an archive, and what it is told."""

import msgspec


class UnpackJob(msgspec.Struct, frozen=True, kw_only=True):
    """As JSON on its standard input.

    Attributes:
        archive: absolute path of a zip file.
        folder: absolute path of the folder to make; there is none yet.
        most_bytes: what all files together may take.
    """

    archive: str
    folder: str
    most_bytes: int


class UnpackOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """As one line of JSON on its standard output; `error` is (code, safe message)."""

    error: tuple[str, str] | None = None
