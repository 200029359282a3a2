"""The least that an HTTP server in Python can do: read a body, send a constant.

Run as `python -m benchmarks.baseline`, with the answer as JSON on standard input; writes the port
that it listens on to standard output.
"""

import json
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Constant:
    """An ASGI application that answers every request alike."""

    def __init__(self, headers: list[tuple[str, str]], body: str) -> None:
        raw_headers = [(name.encode(), value.encode()) for name, value in headers]
        self._start = {"type": "http.response.start", "status": 200, "headers": raw_headers}
        self._body = {"type": "http.response.body", "body": body.encode()}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(self._start)
        await send(self._body)


def main() -> None:
    answer = json.load(sys.stdin)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        Constant(answer["headers"], answer["body"]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,  # the headers in the answer are all there are
        date_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
