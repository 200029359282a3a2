"""Quantities as people read them."""

_BYTE_STEPS = ("B", "kB", "MB", "GB", "TB")
_SPAN_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def human_bytes(count: float) -> str:
    """Three digits are enough to compare models: 87.3 MB. Decimal units, as disks are sold."""
    step = 0
    while count >= 999.5 and step < len(_BYTE_STEPS) - 1:
        count, step = count / 1000, step + 1
    return f"{count:.3g} {_BYTE_STEPS[step]}"


def human_span(seconds: float) -> str:
    """A span in the largest unit that fills at least one: 45 s, 12 min, 3 h."""
    for length, unit in _SPAN_STEPS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(max(seconds, 0) * 1000)} ms"
