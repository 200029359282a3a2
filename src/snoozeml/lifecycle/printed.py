"""What child processes print, as text for the log."""

import re
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\^_])")
"""Control sequences of terminals (ECMA-48), such as colours."""


def printed(line: bytes) -> str:
    """One line without its colours; what is not UTF-8 is replaced."""
    return _ESCAPES.sub("", line.decode("utf-8", "replace")).rstrip()
