"""What becomes of requests, and how it is written."""

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec

from snoozeml.core.plan import WorkerFailure
from snoozeml.wire.dialect import Dialect, WriteRows
from snoozeml.wire.tensors import Array, names_of
from snoozeml.worker.batcher import Pending
from snoozeml.worker.failures import failure_of


class Answer(msgspec.Struct, gc=False):
    """What became of a request.

    Attributes:
        result: its outputs in the order asked for, or why there are none. No exception: through its
            traceback that would keep the whole batch, in a circle that nobody breaks.
        batch_rows: rows in the largest run that served it.
        rows: where in `result` its rows are, on axis 0; None: all of it is its own.
    """

    result: Sequence[Array] | WorkerFailure
    batch_rows: int
    rows: slice | None = None

    @classmethod
    def failed(cls, error: Exception, rows: int) -> Self:
        return cls(failure_of(error), rows)


class AnswerWriter:
    """Writes answers in the dialects of their requests.

    Those of one run to requests that are alike have all but their rows in common.
    """

    def __init__(self, dialects: Mapping[int, Dialect]) -> None:
        self._dialects: Final = dialects
        self._found: Sequence[Array] = ()  # by the run whose answers are being written
        self._writers: Final[dict[tuple[int, int], WriteRows]] = {}

    def write(
        self, request: Pending, found: Sequence[Array], rows: slice | None, duration_s: float
    ) -> bytes:
        """Write what was found for a request, as in `Answer`; raises why it cannot be written."""
        inference, dialect = request.inference, self._dialects[request.codec]
        reply_as = inference.reply_as
        if rows is None:
            names = names_of(found, inference.outputs)
            return dialect.encode(names, found, reply_as, duration_s)
        if found is not self._found:
            self.end_run()
            self._found = found
        alike = request.codec, id(reply_as)
        write = self._writers.get(alike)
        if write is None:
            write = dialect.rows_writer(inference.outputs, found, reply_as)
            self._writers[alike] = write
        return write(rows, duration_s)

    def end_run(self) -> None:
        """Keep nothing of what has been found."""
        self._found = ()
        self._writers.clear()
