"""A real worker process on a socketpair, driven as the daemon drives it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from snoozeml.core.plan import Plan, WorkerReady, WorkerSpec
from snoozeml.core.request import Codec
from snoozeml.core.tensors import Batching, Signature
from snoozeml.wire.frames import Frame, FrameParser, Kind, header

TESTS: Final = Path(__file__).parents[1]
LONG_S: Final = 30.0
"""Longer than anything here takes; what waits for it fails."""


def spec(
    signature: Signature,
    graph: Path | str = "",
    *,
    plan_batching: Batching = "merge",
    prepared: bool = False,
    packed: bool = False,
    **changes: Any,
) -> WorkerSpec:
    plan = Plan(
        format="onnx",
        graph=str(graph),
        prepared=prepared,
        signature=signature,
        batching=plan_batching,
        weights_bytes=0,
        packed_graph=str(graph) if packed else None,
    )
    defaults = WorkerSpec(
        model_id="model",
        plan=plan,
        device="cpu",
        max_batch_size=16,
        max_batch_tokens=16384,
        max_batch_delay_s=0.010,
        batching="adaptive",
        threads=1,
    )
    return msgspec.structs.replace(defaults, **changes)


class Reply(NamedTuple):
    """A frame of the worker, with its body read as JSON."""

    kind: int
    id: int
    batches: int
    batch_rows: int
    queue_s: float
    run_s: float
    body: dict[str, Any]

    def values(self) -> dict[str, Any]:
        """Output name → flat values."""
        assert self.kind == Kind.RESULT, self.body
        return {output["name"]: output["data"] for output in self.body["outputs"]}


def _reply(frame: Frame) -> Reply:
    body = json.loads(frame.body) if frame.body else {}
    return Reply(frame.kind, frame.id, frame.codec, frame.count, frame.t0, frame.t1, body)


class WorkerProcess:
    """The daemon's end; requests are numbered from 1 in the order they are sent."""

    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.sock = sock
        self.process = process
        self.notices: list[Reply] = []
        self._parser = FrameParser()
        self._replies: list[Reply] = []
        self._outbox: list[bytes] = []
        self._last_id = 0

    def start(self, spec: WorkerSpec) -> Reply:
        """Send START and return the answer to it."""
        self.queue(Kind.START, msgspec.json.encode(spec))
        self.flush()
        return self.reply()

    def load(self, spec: WorkerSpec) -> WorkerReady:
        reply = self.start(spec)
        assert reply.kind == Kind.READY, reply
        return msgspec.convert(reply.body, WorkerReady)

    def queue(self, kind: Kind, body: bytes = b"", **fields: Any) -> None:
        self._outbox.append(header(kind, len(body), **fields) + body)

    def ask(self, body: Any, timeout_s: float = LONG_S) -> int:
        """Queue a request for the next `flush`; returns its id."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._last_id += 1
        now = time.monotonic()
        self.queue(
            Kind.INFER, raw, codec=Codec.JSON_V1, id=self._last_id, t0=now, t1=now + timeout_s
        )
        return self._last_id

    def flush(self) -> None:
        """Send all that is queued at once, so that the worker finds it together."""
        self.sock.sendall(b"".join(self._outbox))
        self._outbox.clear()

    def reply(self) -> Reply:
        while not self._replies:
            data = self.sock.recv(1 << 18)
            assert data, "the worker has left"
            self._replies += map(_reply, self._parser.feed(data))
        return self._replies.pop(0)

    def replies(self, count: int) -> dict[int, Reply]:
        """That many replies by id; notices between them are put aside, and there is always room."""
        found: dict[int, Reply] = {}
        while len(found) < count:
            reply = self.reply()
            if reply.kind == Kind.NOTICE:
                self.notices.append(reply)
            elif reply.kind == Kind.USED:
                self.queue(Kind.PACK)
                self.flush()
            else:
                found[reply.id] = reply
        return found

    def infer(self, *bodies: Any) -> list[Reply]:
        """Send requests together; their replies in the same order."""
        ids = [self.ask(body) for body in bodies]
        self.flush()
        found = self.replies(len(ids))
        return [found[request_id] for request_id in ids]

    def ended(self) -> int:
        """Wait for the process to leave; returns how it ended."""
        return self.process.wait(timeout=LONG_S)


@contextmanager
def worker(command: Sequence[str] = ("-m", "snoozeml.worker")) -> Iterator[WorkerProcess]:
    """Start a worker that waits for START."""
    ours, theirs = socket.socketpair()
    ours.settimeout(LONG_S)
    fd = theirs.fileno()
    process = subprocess.Popen(
        [sys.executable, *command, "--fd", str(fd)],
        pass_fds=[fd],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])},
    )
    theirs.close()
    try:
        yield WorkerProcess(ours, process)
    finally:
        ours.close()
        process.kill()
        process.wait()
