"""Where the daemon listens."""

import os
import socket


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """The address that a name or an address stands for; where there are both, IPv4.

    Raises:
        OSError: there is none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    return family, str(address[0])


def cannot_listen(host: str, port: int, error: OSError) -> OSError:
    number = error.errno or 0
    # Of the system's own errors the words are known; some libraries add the address once more.
    why = os.strerror(number) if number > 0 else error.strerror or str(error)
    return OSError(number, f"cannot listen on {host}:{port}: {why}")


def written(address: str, port: int) -> str:
    """`host:port` as a URL writes it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
