"""Hanging up on one client, and on nobody else."""

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from snoozeml.fronts.grpc.hanging_up import hang_up


def connected(
    stack: ExitStack, family: socket.AddressFamily, name: Any
) -> tuple[socket.socket, socket.socket]:
    """A client with a name of its own, and the server's end."""
    listener = stack.enter_context(socket.socket(family))
    listener.bind(name)
    listener.listen()
    client = stack.enter_context(socket.socket(family))
    client.bind(name)
    client.settimeout(5)
    client.connect(listener.getsockname())
    return client, stack.enter_context(listener.accept()[0])


def is_open(client: socket.socket, server: socket.socket) -> bool:
    server.send(b"x")
    return client.recv(1) == b"x"


@pytest.mark.parametrize(
    ("family", "name", "written"),
    [
        (socket.AF_INET, ("127.0.0.1", 0), "ipv4:127.0.0.1:{0[1]}"),
        (socket.AF_INET6, ("::1", 0), "ipv6:%5B::1%5D:{0[1]}"),
        (socket.AF_UNIX, "", "unix-abstract:{1}"),
    ],
)
def test_the_client_is_hung_up_on_and_no_other(
    family: socket.AddressFamily, name: Any, written: str
) -> None:
    with ExitStack() as stack:
        client, _ = connected(stack, family, name)
        others = connected(stack, family, name)
        descriptors = len(list(Path("/dev/fd").iterdir()))
        own = client.getsockname()
        hang_up(written.format(own, own[1:].decode() if isinstance(own, bytes) else ""))
        assert client.recv(1) == b""
        assert is_open(*others)
        assert len(list(Path("/dev/fd").iterdir())) == descriptors


def test_a_client_over_ipv4_at_a_server_for_both() -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        )
        port = listener.getsockname()[1]
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        stack.enter_context(listener.accept()[0])
        hang_up(f"ipv4:127.0.0.1:{client.getsockname()[1]}")
        assert client.recv(1) == b""


def test_sockets_without_a_name_are_left_alone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hang_up("unix:")
        hang_up("")
        assert is_open(ours, theirs)
