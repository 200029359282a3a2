"""Outputs of several requests as raw bytes, of which each answer takes its rows."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple


class Column(NamedTuple):
    """One output of a run, with its rows on axis 0.

    Attributes:
        head: what stands before the data of so many rows.
        data: of all rows.
    """

    head: Callable[[int], bytes]
    data: bytes
    row_bytes: int


class Columns:
    """All outputs of a run, in the order in which they are written."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns: Final = columns
        self._by_count: Final[dict[int, list[tuple[bytes, bytes, int]]]] = {}

    def join(self, pieces: list[bytes], rows: slice) -> bytes:
        """What an answer begins with, and then says of these rows.

        Heads are made once for each number of rows.
        """
        start, stop = rows.start, rows.stop
        columns = self._by_count.get(stop - start)
        if columns is None:
            columns = self._by_count[stop - start] = self._with_heads(stop - start)
        for head, data, row_bytes in columns:
            pieces += head, data[start * row_bytes : stop * row_bytes]
        return b"".join(pieces)

    def _with_heads(self, count: int) -> list[tuple[bytes, bytes, int]]:
        return [(head(count), data, row_bytes) for head, data, row_bytes in self._columns]
