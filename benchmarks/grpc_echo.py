"""The least that gRPC can cost in the daemon's layout: a process in front, and one behind it.

Run as `python -m benchmarks.grpc_echo`, with an encoded answer on standard input; writes the
address that it listens on to standard output. The process in front is served by the daemon's own
library, and passes each message on as a frame; the one behind sends the answer back for each.
"""

import asyncio
import os
import socket
import sys

import uvloop

from benchmarks.h2load import INFER
from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.calls import Answer, Call
from snoozeml.fronts.grpc.held import HeldMessages
from snoozeml.fronts.grpc.native import NativeServer
from snoozeml.fronts.limits import ClientLimits
from snoozeml.lifecycle.channel import Channel
from snoozeml.wire.frames import Frame, Kind, header
from snoozeml.worker.reader import FrameReader

_LARGEST_BYTES = 2**20


class _Front:
    """Hands messages to the process behind and waits for what comes back."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next_id = 1

    async def infer(self, _call: Call, body: bytes) -> Answer:
        assert self.channel is not None
        number, self._next_id = self._next_id, self._next_id + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.channel.send(Kind.INFER, (body,), id=number)
        return Answer(await answer)

    def take(self, frames: list[Frame]) -> None:
        for frame in frames:
            waiting = self._waiting.pop(frame.id)
            if not waiting.done():  # its client may have left
                waiting.set_result(frame.body)


def _echo(sock: socket.socket, answer: bytes) -> None:
    reader = FrameReader(sock)
    while (frames := reader.read(None)) is not None:
        heads = (header(Kind.RESULT, len(answer), id=frame.id) for frame in frames)
        sock.sendall(b"".join(head + answer for head in heads))


async def _serve(sock: socket.socket) -> None:
    front = _Front()
    front.channel = await Channel.open(sock, front.take, lambda: None)
    limits = ClientLimits(request_bytes=_LARGEST_BYTES)
    server = NativeServer("127.0.0.1:0", limits)
    await server.start(GrpcApp({INFER: front.infer}, {}, HeldMessages(limits)))
    print(server.address, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    answer = sys.stdin.buffer.read()
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        _echo(there, answer)
        os._exit(0)
    there.close()
    here.setblocking(False)
    uvloop.run(_serve(here))


if __name__ == "__main__":
    main()
