"""The worker's loop: read, decode, batch, run, encode, send."""

import contextlib
import gc
import os
import select
import signal
import socket
import threading
import time
from typing import Final

import msgspec

from snoozeml.core import heap
from snoozeml.core.plan import WorkerFailure, WorkerReady, WorkerSpec
from snoozeml.errors import Cancelled, DeadlineExceeded
from snoozeml.wire.dialects import dialects
from snoozeml.wire.frames import Frame, Kind, header
from snoozeml.wire.repeats import Decoded, Repeated
from snoozeml.worker.answers import Answer, AnswerWriter
from snoozeml.worker.batcher import Batcher, Pending, Run
from snoozeml.worker.engines import Engine, LoadEngine, load_engine
from snoozeml.worker.failures import encoded, failure_of
from snoozeml.worker.limits import Limits
from snoozeml.worker.open_rows import layout_of
from snoozeml.worker.pacing import AdaptivePace, FixedPace, Pace
from snoozeml.worker.packing import Packing
from snoozeml.worker.reader import FrameReader
from snoozeml.worker.relatives import end_relatives
from snoozeml.worker.rows import Measures
from snoozeml.worker.runner import Runner

_LATE: Final = WorkerFailure(
    code=DeadlineExceeded.code, message="the deadline passed before the model could run"
)
_ORPHAN_S: Final = 1.0
_CANCELLED: Final = WorkerFailure(
    code=Cancelled.code, message="the request was withdrawn before it ran"
)
_clock: Final = time.monotonic
_INFER: Final = Kind.INFER  # to look them up in their class takes as long as to compare them
_RESULT: Final = Kind.RESULT

# Made here and not where it is used, which is after the fork: making it takes half a millisecond.
_decode_spec: Final = msgspec.json.Decoder(WorkerSpec).decode


def serve(sock: socket.socket, load: LoadEngine = load_engine) -> None:
    """Hold one model and answer requests until the daemon says stop or goes away.

    Takes over two signals: SIGINT is ignored, SIGTERM ends the process after the batch in hand.

    Args:
        sock: one end of a connected stream socketpair, blocking. The first frame is START.
        load: makes the engine for what START says.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the daemon
    signal.signal(signal.SIGTERM, lambda *_: _stop_reading(sock))
    try:
        # The daemon may go away at any moment; then nobody is left to answer.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            _serve(sock, load)
    finally:
        end_relatives()


def _stop_reading(sock: socket.socket) -> None:
    """Make every wait for the daemon end as if it had gone; answers can still leave."""
    with contextlib.suppress(OSError):  # it has gone
        sock.shutdown(socket.SHUT_RD)


def _leave_with_daemon(sock: socket.socket) -> None:
    """End the process soon after the daemon has gone, whatever the model is doing.

    The loop notices by itself, but only between runs, and a run may hang.
    """
    hang_up = select.poll()
    hang_up.register(sock, 0)  # a hang-up is reported without being asked for
    hang_up.poll()
    time.sleep(_ORPHAN_S)
    end_relatives()
    os._exit(1)


def _serve(sock: socket.socket, load: LoadEngine) -> None:
    reader = FrameReader(sock)
    while not (frames := reader.read(None)):
        if frames is None:
            return
    start, *frames = frames
    if start.kind != Kind.START:  # the daemon has changed its mind
        return
    started_at = _clock()
    try:
        spec = _decode_spec(start.body)
        lacking = _confine(spec)
        threading.Thread(target=_leave_with_daemon, args=(sock,), daemon=True).start()
        engine = load(spec)
        worker = _Worker(sock, reader, spec, engine)
    except Exception as error:  # whatever it is, the daemon must hear of it
        _send(sock, Kind.LOAD_FAILED, encoded(failure_of(error)))
        return
    gc.freeze()  # what is loaded stays: no collection needs to look at it again
    load_s = _clock() - started_at
    ready = WorkerReady(load_s=load_s, device=engine.device, lacking=lacking)
    _send(sock, Kind.READY, msgspec.json.encode(ready))
    worker.run(frames)


def _confine(spec: WorkerSpec) -> tuple[str, ...]:
    """Enter the sandbox, before there is a second thread; returns what it lacks."""
    if spec.sandbox is None:
        return ()
    from snoozeml.worker.sandbox import confine

    return confine(spec.sandbox)


def _send(sock: socket.socket, kind: Kind, body: bytes) -> None:
    sock.sendall(header(kind, len(body)) + body)


class _Worker:
    """One model at work; what it has to say leaves in one piece at the end of each step."""

    def __init__(
        self, sock: socket.socket, reader: FrameReader, spec: WorkerSpec, engine: Engine
    ) -> None:
        self._sock: Final = sock
        self._reader: Final = reader
        self._dialects: Final = dialects(spec.model_id, spec.plan.signature)
        self._writer: Final = AnswerWriter(self._dialects)
        self._layout: Final = layout_of(spec.plan.signature)
        self._notices: Final[list[WorkerFailure]] = []
        self._runner: Final = Runner(spec, engine, self._layout, self._notices)
        self._packing: Final = Packing(spec, engine, self._notices)
        self._batcher: Final = _batcher(spec)
        self._outbox: list[bytes] = []
        self._unreported_batches = 0  # which have run since the last frame; the daemon counts them
        self._is_stopping = False

    def run(self, frames: list[Frame] | None) -> None:
        """Work until STOP is obeyed or the daemon is gone; `frames` have been read already."""
        while frames is not None:
            wait_s = self._work_off(frames)
            frames.clear()  # or what has been read would stay for as long as nothing comes
            if not self._is_stopping:
                frames = self._reader.read(wait_s)
            elif wait_s is None:
                return

    def _work_off(self, frames: list[Frame]) -> float | None:
        """Take frames, and run what is full; return what `_step` did at the end."""
        # The daemon can be busy with the answers of one batch while the next is decoded. But if
        # further on in what we have read somebody withdraws a request, he is heard first.
        in_turn = all(frame.kind == _INFER for frame in frames)
        for frame in frames:
            self._take(frame)
            if in_turn and self._batcher.is_full:
                self._step()
                self._flush()
        wait_s = self._step()
        self._flush()
        return wait_s

    def _take(self, frame: Frame) -> None:
        if frame.kind == _INFER:
            self._admit(frame)
        elif frame.kind == Kind.CANCEL:
            # Every request is answered once, so that the daemon knows what is in our hands.
            if self._batcher.cancel(frame.id):
                self._fail(frame.id, _CANCELLED)
        elif frame.kind == Kind.STOP:
            self._is_stopping = True
            self._batcher.close()
        elif frame.kind == Kind.PACK:
            self._packing.start()

    def _admit(self, frame: Frame) -> None:
        """Decode a request and queue it, or answer it where no run is needed for that."""
        if frame.t1 <= _clock():
            self._fail(frame.id, _LATE)
            return
        try:
            inference = self._dialects[frame.codec].decode(frame.body)
            rows, key, length = self._measured(inference)
            empty = None if rows else self._layout.empty(inference.inputs, inference.outputs)
        except Exception as error:  # this request's own; the next one is another story
            self._fail(frame.id, failure_of(error))
            return
        request = Pending(frame.id, frame.codec, frame.t0, frame.t1, inference, rows, key, length)
        if empty is None:
            self._batcher.add(request, backlog=frame.count)
        else:
            self._answer(request, Answer(empty, 0), queue_s=_clock() - frame.t0, run_s=0.0)

    def _measured(self, inference: Decoded) -> Measures:
        layout = self._layout
        if not isinstance(inference, Repeated) or not layout.looks_at_shapes_only:
            return layout.measure(inference.inputs, inference.outputs)
        form = inference.form
        if form.notes is None:
            form.notes = layout.measure(inference.inputs, inference.outputs)
        measures: Measures = form.notes
        return measures

    def _step(self) -> float | None:
        """Run at most one batch.

        Returns:
            Seconds until there is something to do even if no frame comes; None: never.
        """
        now = _clock()
        for request in self._batcher.take_late(now):
            self._fail(request.id, _LATE)
        todo = self._batcher.next(now)
        if todo is None:
            return None
        if isinstance(todo, Run):
            self._run(todo)
            return None if self._batcher.is_empty else 0.0
        return todo.until - now

    def _run(self, run: Run) -> None:
        started_at = _clock()
        answers = self._runner.run(run.batch)
        run_s = _clock() - started_at
        self._unreported_batches += 1
        for request, answer in zip(run.batch, answers, strict=True):
            self._answer(request, answer, started_at - request.arrived_at, run_s)
        self._writer.end_run()
        answered_at = _clock()  # before anybody can have an answer and come again
        self._flush()
        self._batcher.answered(run, started_at, answered_at)
        if self._packing.has_proven_used(answered_at):
            self._outbox.append(header(Kind.USED, 0))
        if self._notices:
            self._batcher.limit(self._runner.limits)
            while self._notices:  # another thread may add one meanwhile
                body = encoded(self._notices.pop(0))
                self._outbox += header(Kind.NOTICE, len(body)), body

    def _answer(self, request: Pending, answer: Answer, queue_s: float, run_s: float) -> None:
        rows = answer.batch_rows
        if isinstance(answer.result, WorkerFailure):
            self._fail(request.id, answer.result, rows, run_s)
            return
        try:
            duration_s = _clock() - request.arrived_at
            body = self._writer.write(request, answer.result, answer.rows, duration_s)
        except Exception as error:  # an answer that cannot be written must not take others along
            self._fail(request.id, failure_of(error), rows, run_s)
            return
        batches, self._unreported_batches = self._unreported_batches, 0
        head = header(_RESULT, len(body), batches, rows, request.id, queue_s, run_s)
        self._outbox += head, body

    def _fail(
        self, request_id: int, failure: WorkerFailure, rows: int = 0, run_s: float = 0.0
    ) -> None:
        """Answer with a failure, of a run of so many rows or before any run."""
        body = encoded(failure)
        batches, self._unreported_batches = self._unreported_batches, 0
        head = header(Kind.ERROR, len(body), batches, rows, request_id, t1=run_s)
        self._outbox += head, body

    def _flush(self) -> None:
        if self._outbox:
            said = b"".join(self._outbox)
            self._outbox.clear()
            self._sock.sendall(said)
            if len(said) >= heap.LARGE_BYTES:
                self._reader.trim_later()


def _batcher(spec: WorkerSpec) -> Batcher:
    if spec.batching == "off" or spec.plan.batching != "merge":
        return Batcher(Limits(1, spec.max_batch_tokens), FixedPace(0.0))
    pace: Pace = (
        FixedPace(spec.max_batch_delay_s)
        if spec.batching == "fixed"
        else AdaptivePace(spec.max_batch_delay_s)
    )
    return Batcher(Limits(spec.max_batch_size, spec.max_batch_tokens), pace)
