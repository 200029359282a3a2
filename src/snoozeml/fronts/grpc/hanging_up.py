"""Closing a connection that belongs to grpcio, which has no way to ask for it."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

_DESCRIPTORS: Final = Path("/dev/fd")


def hang_up(peer: str) -> None:
    """Close the connection to a client.

    Args:
        peer: the client, as grpcio writes it: its kind of address, a colon, the address.
    """
    for entry in filter(Path.is_socket, list(_DESCRIPTORS.iterdir())):
        with (
            contextlib.suppress(OSError),  # it has no peer, or is gone meanwhile
            socket.socket(fileno=os.dup(int(entry.name))) as connection,
        ):
            if unquote(peer) == _written(connection.family, connection.getpeername()):
                connection.shutdown(socket.SHUT_RDWR)


def _written(family: int, name: Any) -> str | None:
    """A socket's address as grpcio writes it, but for characters that it escapes."""
    if family == socket.AF_INET:
        return f"ipv4:{name[0]}:{name[1]}"
    if family == socket.AF_INET6:
        host, is_mapped = name[0].removeprefix("::ffff:"), "." in name[0]
        return f"ipv4:{host}:{name[1]}" if is_mapped else f"ipv6:[{name[0]}]:{name[1]}"
    # Those of Unix that are grpcio's have names without files. Others have none at all, such as the
    # workers'.
    return f"unix-abstract:{os.fsdecode(name[1:])}" if isinstance(name, bytes) and name else None
