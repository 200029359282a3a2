"""The least that a gRPC server in this process layout can do: take a message, send a constant.

Run as `python -m benchmarks.grpc_echo`, with the answer's bytes on standard input; writes the
address that it listens on to standard output. It is the daemon's own server with nothing behind.
"""

import asyncio
import sys

import uvloop

from snoozeml.fronts.grpc.app import GrpcApp
from snoozeml.fronts.grpc.calls import Answer, Call
from snoozeml.fronts.grpc.native import NativeServer

PATH = "/snoozeml.v1.InferenceService/Infer"
_LARGEST_BYTES = 2**20


class _Echo(GrpcApp):
    def __init__(self, answer: bytes) -> None:
        async def echo(_call: Call, _body: bytes) -> Answer:
            return Answer(answer)

        self.unary = {PATH: echo}  # type: ignore[misc]
        self.streaming = {}  # type: ignore[misc]


async def _serve() -> None:
    server = NativeServer("127.0.0.1:0", _LARGEST_BYTES)
    await server.start(_Echo(sys.stdin.buffer.read()))
    print(server.address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())
