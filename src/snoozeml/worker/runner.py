"""Running batches so that every answer is what its request would have got alone."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from snoozeml.core.plan import WorkerFailure, WorkerSpec
from snoozeml.errors import InferenceFailed, OutOfMemory
from snoozeml.wire.repeats import Repeated
from snoozeml.wire.tensors import DTYPES, Array, NamedArrays, Tensors, names_of
from snoozeml.worker.agreement import agree
from snoozeml.worker.answers import Answer
from snoozeml.worker.batcher import Pending
from snoozeml.worker.engines import Engine
from snoozeml.worker.limits import Limits
from snoozeml.worker.rows import OutputWithoutRows, RowLayout

_VERIFIED_BATCHES: Final = 3
"""The first merged batches, of which one request is run alone as well, and compared; and as many of
the first requests that are cut, of which rows on either side of a cut are run together as well."""


class Runner:
    """Runs one model.

    INVARIANT: an answer equals that of its request run alone, within `agree`. Where merging cannot
    keep that, it is given up for the rest of the worker's life.

    A run that lacks memory is tried again with half the rows, and what has worked then, counted in
    tokens where rows have a length, is the limit for the runs to come. A run that fails for lack of
    memory with a single row proves nothing about others, and lowers no limit.

    Args:
        notices: gets an entry whenever `limits` change.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        engine: Engine,
        layout: RowLayout,
        notices: list[WorkerFailure],
    ) -> None:
        self._engine: Final = engine
        self._layout: Final = layout
        self._notices: Final = notices
        self._dtypes: Final = {s.name: DTYPES[s.datatype] for s in spec.plan.signature.outputs}
        self._may_cut: Final = spec.plan.batching != "alone"
        self._is_row_by_row: Final = spec.plan.batching == "row_by_row"
        rows = 1 if self._is_row_by_row else spec.max_batch_size
        self._limits = Limits(rows, spec.max_batch_tokens)
        self._to_verify = _VERIFIED_BATCHES
        self._has_single_rows: Final = spec.max_batch_size == 1
        self._cuts_to_verify = 0 if self._is_row_by_row else _VERIFIED_BATCHES
        self._has_given_up = False

    @property
    def limits(self) -> Limits:
        """What a batch of several requests should keep."""
        return replace(self._limits, rows=1) if self._has_given_up else self._limits

    def run(self, batch: Sequence[Pending]) -> list[Answer]:
        """Run requests with one batch key. Never raises: each request gets an answer of its own."""
        before = self._limits
        answers = self._run(batch)
        if self._limits != before:
            self._settle_limits(before, answers)
        return answers

    def _run(self, batch: Sequence[Pending]) -> list[Answer]:
        if len(batch) == 1:
            return [self._alone(batch[0])]
        rows = sum(request.rows for request in batch)
        length = max(request.length for request in batch)
        if rows > self.limits.rows_of(length):  # lower than when the batch was put together
            return self._halved(batch)
        try:
            return self._merged(batch, rows)
        except OutputWithoutRows as error:
            self._give_up(str(error))
            return [self._alone(request) for request in batch]
        except (OutOfMemory, MemoryError):
            self._limits = self._limits.halved(rows, length)
            return self._halved(batch)
        except Exception as error:  # whatever it is, only the requests that cause it shall suffer
            answers = [self._alone(request) for request in batch]
            if not any(isinstance(answer.result, WorkerFailure) for answer in answers):
                self._give_up(f"a batch failed, but none of its requests did alone: {error}")
            return answers

    def _halved(self, batch: Sequence[Pending]) -> list[Answer]:
        middle = len(batch) // 2
        return [*self._run(batch[:middle]), *self._run(batch[middle:])]

    def _settle_limits(self, before: Limits, answers: Sequence[Answer]) -> None:
        """Keep the limits that were lowered for these answers, if that has helped."""
        if any(map(_lacked_memory, answers)):
            self._limits = before
            return
        now = self._limits.compared_to(before)
        why = f"a run ran out of memory: from now on at most {now}"
        self._notices.append(WorkerFailure(code=OutOfMemory.code, message=why))

    def _give_up(self, why: str) -> None:
        """Neither merge nor cut requests any more."""
        if not self._has_given_up:
            self._has_given_up = True
            why = f"requests are run one by one from now on: {why}"
            self._notices.append(WorkerFailure(code="unbatchable", message=why))

    def _merged(self, batch: Sequence[Pending], total: int) -> list[Answer]:
        names = batch[0].inference.outputs
        outputs = self._infer(self._joined(batch), names)
        if not self._to_verify:
            spans = self._layout.spans(names, outputs, [request.rows for request in batch])
            if spans is not None:
                return [Answer(outputs, total, rows) for rows in spans]
        requests = [request.inference.inputs for request in batch]
        results = self._layout.split(names, outputs, requests)
        if self._to_verify:
            most_padded = min(range(len(batch)), key=lambda i: (batch[i].length, -i))
            self._verify(batch[most_padded], results[most_padded])
            self._to_verify -= 1
        return [Answer(result, total) for result in results]

    def _joined(self, batch: Sequence[Pending]) -> Tensors:
        inferences = [request.inference for request in batch]
        first = inferences[0]
        if isinstance(first, Repeated) and first.form.has_rows_first:
            bodies = [
                r.body for r in inferences if isinstance(r, Repeated) and r.form is first.form
            ]
            if len(bodies) == len(batch):
                return first.form.tensors(bodies)
        return self._layout.merge([inference.inputs for inference in inferences])

    def _verify(self, request: Pending, result: Sequence[Array]) -> None:
        """Run one request alone as well, and compare.

        It should be the last of those that were padded most: whatever padding does to a row, and
        rows do to each other, has reached it.
        """
        asked = request.inference.outputs
        _compare(result, self._infer(request.inference.inputs, asked), asked)

    def _alone(self, request: Pending) -> Answer:
        try:
            most = self._limits.rows_of(request.length)
            if request.rows > most and self._can_be_cut(request):
                return self._in_pieces(request, most)
            inference = request.inference
            return Answer(self._infer(inference.inputs, inference.outputs), request.rows)
        except OutputWithoutRows as error:
            return self._uncut(request, error)
        except (OutOfMemory, MemoryError) as error:
            rows = min(request.rows, self._limits.rows_of(request.length))
            if rows == 1 or not self._can_be_cut(request):
                return Answer.failed(error, request.rows)
            self._limits = self._limits.halved(rows, request.length)
            return self._alone(request)
        except Exception as error:  # the worker answers with it, and goes on
            return Answer.failed(error, request.rows)

    def _can_be_cut(self, request: Pending) -> bool:
        if request.batch_key is None or not self._may_cut:
            return False
        return self._is_row_by_row or not self._has_given_up

    def _uncut(self, request: Pending, error: OutputWithoutRows) -> Answer:
        """Answer a request whose pieces cannot be put together again."""
        if self._is_row_by_row:
            why = f"the model takes one row at a time, and {error}"
            return Answer.failed(InferenceFailed(why), request.rows)
        self._give_up(str(error))
        return self._alone(request)

    def _in_pieces(self, request: Pending, most: int) -> Answer:
        """Run a request that is larger than a batch in several runs of at most so many rows."""
        starts = range(0, request.rows, most)
        rows = [min(most, request.rows - start) for start in starts]
        inputs, names = request.inference.inputs, request.inference.outputs
        pieces = [
            self._infer_copy(self._layout.cut(inputs, start, start + n), names)
            for start, n in zip(starts, rows, strict=True)
        ]
        result = self._layout.join(names, pieces, rows)
        may_pair = self._has_single_rows and not request.length
        if self._cuts_to_verify and (most > 1 or may_pair):
            self._cuts_to_verify -= 1
            self._verify_cut(request, result, most)
        return Answer(result, most)

    def _verify_cut(self, request: Pending, result: Sequence[Array], most: int) -> None:
        """Run rows on either side of the first cut together, and compare.

        Not the whole request: it need not fit into memory. Where one row is a batch, two are run;
        but not where that has become so for lack of memory, or because rows are that long.
        """
        start = most // 2
        stop = min(start + max(most, 2), request.rows)
        inputs, asked = request.inference.inputs, request.inference.outputs
        spans = (0, start), (start, stop), (stop, request.rows)
        parts = [self._layout.cut(inputs, *span) for span in spans]
        try:
            together = self._infer_copy(parts[1], asked)
        except Exception:  # what may not run together is cut with reason
            return
        _compare(self._layout.split(asked, result, parts)[1], together, asked)

    def _infer_copy(self, inputs: Tensors, names: Sequence[str]) -> Sequence[Array]:
        """Like `_infer`, for rows that may be run again: the model's code may work in place."""
        return self._infer({name: array.copy() for name, array in inputs.items()}, names)

    def _infer(self, inputs: Tensors, names: Sequence[str]) -> Sequence[Array]:
        outputs = self._engine.infer(self._layout.complete(inputs), names)
        if isinstance(outputs, NamedArrays):  # the signature says nothing about them
            return outputs
        dtypes, wanted = [output.dtype for output in outputs], [self._dtypes[n] for n in names]
        if dtypes != wanted:
            raise InferenceFailed(
                f"the model answered with {', '.join(map(str, dtypes))}"
                f" where its signature says {', '.join(map(str, wanted))}"
            )
        return outputs


def _compare(batched: Sequence[Array], alone: Sequence[Array], asked: Sequence[str]) -> None:
    """Raises OutputWithoutRows: these are not the same outputs."""
    names = names_of(batched, asked)
    if names_of(alone, names) != names:
        raise OutputWithoutRows("outputs differ from run to run")
    for name, one, other in zip(names, batched, alone, strict=True):
        if not agree(one, other):
            raise OutputWithoutRows(f"output {name!r} of a row depends on the rows beside it")


def _lacked_memory(answer: Answer) -> bool:
    return isinstance(answer.result, WorkerFailure) and answer.result.code == OutOfMemory.code
