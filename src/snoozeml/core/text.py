"""Text that cannot be sent: with half a surrogate pair, which stands for a byte outside UTF-8."""


def is_text(name: str) -> bool:
    """Whether a file's name, or its path, can be written down for others: not all are UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def spelt(text: str) -> str:
    """The text with what cannot be sent spelt out, as `\\udcff`."""
    return text.encode(errors="backslashreplace").decode()
