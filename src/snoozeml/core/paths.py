"""What of a path may be told to whom."""

import re
from pathlib import Path
from typing import Final

_FOLDERS: Final = re.compile(r"(?<![\w.])/(?:[^\s/:'\"]+/)+")


def without_folders(text: str, *known: Path) -> str:
    """A library's words with files called by their names alone: the folders are the machine's own.

    Args:
        known: absolute folders that are likely to be in the text; others are found as long as
            there is no white space in them.
    """
    for folder in known:
        text = text.replace(f"{folder}/", "")
    return _FOLDERS.sub("", text)
