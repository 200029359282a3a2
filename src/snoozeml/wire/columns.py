"""Outputs of several requests as raw bytes, of which each answer takes its rows."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

_LARGE_BYTES: Final = 4096


class Column(NamedTuple):
    """One output of a run, with its rows on axis 0.

    Attributes:
        head: what stands before the data of so many rows.
        data: of all rows.
    """

    head: Callable[[int], bytes]
    data: bytes
    row_bytes: int

    def with_head(self, rows: int) -> "tuple[bytes, bytes | memoryview, int]":
        """Its head for so many rows, its data, and bytes per row."""
        # A slice of bytes is a copy, which takes less time than a view does as long as it is small.
        data = memoryview(self.data) if rows * self.row_bytes > _LARGE_BYTES else self.data
        return self.head(rows), data, self.row_bytes


class Columns:
    """All outputs of a run, in the order in which they are written."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns: Final = columns
        self._by_count: Final[dict[int, list[tuple[bytes, bytes | memoryview, int]]]] = {}

    def join(self, pieces: list[bytes | memoryview], rows: slice) -> bytes:
        """What an answer begins with, and then says of these rows.

        Heads are made once for each number of rows.
        """
        start, stop = rows.start, rows.stop
        columns = self._by_count.get(stop - start)
        if columns is None:
            columns = [column.with_head(stop - start) for column in self._columns]
            self._by_count[stop - start] = columns
        for head, data, row_bytes in columns:
            pieces += head, data[start * row_bytes : stop * row_bytes]
        return b"".join(pieces)
