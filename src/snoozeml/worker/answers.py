"""What becomes of requests, and how it is written."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from snoozeml.wire.dialect import Dialect, WriteRows
from snoozeml.wire.tensors import Array, names_of
from snoozeml.worker.batcher import Pending


class Answer(msgspec.Struct, gc=False):
    """What became of a request.

    Attributes:
        result: its outputs in the order asked for, or why there are none.
        batch_rows: rows in the largest run that served it.
        rows: where in `result` its rows are, on axis 0; None: all of it is its own.
    """

    result: Sequence[Array] | Exception
    batch_rows: int
    rows: slice | None = None

    def outputs(self) -> Sequence[Array]:
        """The request's own outputs; raises what it has failed with."""
        found, rows = self.found(), self.rows
        return found if rows is None else [array[rows] for array in found]

    def found(self) -> Sequence[Array]:
        """All of `result`; raises what the request has failed with."""
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class AnswerWriter:
    """Writes answers in the dialects of their requests.

    Those of one run to requests that are alike have all but their rows in common.
    """

    def __init__(self, dialects: Mapping[int, Dialect]) -> None:
        self._dialects: Final = dialects
        self._found: Sequence[Array] = ()  # by the run whose answers are being written
        self._writers: Final[dict[tuple[int, int], WriteRows]] = {}

    def write(self, request: Pending, answer: Answer, duration_s: float) -> bytes:
        """Write a request's outputs; raises what it has failed with, or why they have no form."""
        found, inference = answer.found(), request.inference
        if answer.rows is not None:
            return self._rows_writer(request, found)(answer.rows, duration_s)
        encode = self._dialects[request.codec].encode
        names = names_of(found, inference.outputs)
        return encode(names, found, inference.reply_as, duration_s)

    def end_run(self) -> None:
        """Keep nothing of what has been found."""
        self._found = ()
        self._writers.clear()

    def _rows_writer(self, request: Pending, found: Sequence[Array]) -> WriteRows:
        if found is not self._found:
            self.end_run()
            self._found = found
        reply_as = request.inference.reply_as
        alike = request.codec, id(reply_as)
        write = self._writers.get(alike)
        if write is None:
            prepare = self._dialects[request.codec].rows_writer
            write = self._writers[alike] = prepare(request.inference.outputs, found, reply_as)
        return write
