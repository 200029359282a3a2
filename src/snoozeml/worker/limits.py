"""How much may run at once."""

import msgspec
from msgspec.structs import replace


class Limits(msgspec.Struct, frozen=True):
    """What bounds a batch.

    Attributes:
        rows: at most, whatever their length.
        tokens: at most, for rows that have a length: rows times the longest, as padding makes it.
    """

    rows: int
    tokens: int

    def rows_of(self, length: int) -> int:
        """How many rows of a length may run at once: at least one, however long it is."""
        return min(self.rows, max(self.tokens // length, 1)) if length else self.rows

    def halved(self, rows: int, length: int) -> "Limits":
        """The limits after a run of two rows or more has turned out to be too large."""
        if length:
            return replace(self, tokens=rows * length // 2)
        return replace(self, rows=rows // 2)

    def tightened(self, other: "Limits") -> "Limits":
        """The tighter of two, in rows and in tokens."""
        return Limits(min(self.rows, other.rows), min(self.tokens, other.tokens))

    def compared_to(self, before: "Limits") -> str:
        """What has become tighter, in words."""
        if self.rows < before.rows:
            return f"{self.rows} rows, not {before.rows}"
        return f"{self.tokens} tokens, not {before.tokens}"
