"""The demo in a world whose only network is loopback, where the kernel counts who wanted out.

Run as `python -m e2e.isolated MODELS_DIR CACHE_DIR`: enters a network namespace of its own, starts
a daemon there, walks the demo's way and prints, as one line of JSON, how many packets had nowhere
to go or were datagrams (name lookups, whatever their server). A socket that lives for a microsecond
is counted too.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from e2e.client import tensor
from e2e.daemon import Daemon, path

_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP_RUNNING: Final = 0x1 | 0x40

NOT_PERMITTED: Final = 77
"""The exit code where this machine lets nobody make a namespace."""

_COUNTERS: Final = {"Ip.OutNoRoutes", "Udp.OutDatagrams", "Ip6OutNoRoutes", "Udp6OutDatagrams"}
_LINGER_S: Final = 12.0
"""ONNX Runtime's official builds call home 8 s after they made a session, unless told not to."""

_NOBODY: Final = ("192.0.2.1", 443)  # an address that is set aside for examples


def demo_walk(daemon: Daemon) -> None:
    """Sleeping, then warm, looked at, and asleep again: what `make demo` shows."""
    for _ in range(2):
        row = tensor("X", [1, 4], [5.1, 3.5, 1.4, 0.2])
        assert daemon.infer("iris", row).status == 200
        assert daemon.infer("echo", tensor("x", [1, 1], [1])).status == 200
    endpoint = f"http://{daemon.ready['http']}"
    for command in (["status"], ["load", "--model-id", "echo"], ["status", "--json"]):
        arguments = [*command, "--endpoint", endpoint]
        subprocess.run([sys.executable, "-m", "snoozeml", *arguments], check=True, stdout=2)
    daemon.metrics()
    daemon.refresh()
    assert daemon.request("POST", path("absent", "infer"), b"{}").status == 404
    for model_id in ("iris", "echo"):
        daemon.control(model_id, "unload")


def _enter_namespace() -> None:
    """Leave every network behind, and bring up loopback.

    Raises:
        PermissionError: the kernel, or the container we are in, does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        raise PermissionError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14s", b"lo", _IFF_UP_RUNNING, b"")
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _wanted_out() -> int:
    """Packets without a route, and datagrams, since the namespace was made."""
    lines = Path("/proc/net/snmp").read_text().splitlines()
    counters: dict[str, int] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        group, *columns = names.split()
        keys = (group.replace(":", ".") + column for column in columns)
        counters |= dict(zip(keys, map(int, values.split()[1:]), strict=True))
    for line in Path("/proc/net/snmp6").read_text().splitlines():
        name, value = line.split()
        counters[name] = int(value)
    return sum(counters[name] for name in _COUNTERS)


def _knock_outside() -> None:
    with socket.socket() as stranger:
        stranger.connect_ex(_NOBODY)


def main() -> None:
    models_dir, cache_dir = map(Path, sys.argv[1:])
    try:
        _enter_namespace()
    except PermissionError:
        sys.exit(NOT_PERMITTED)
    with Daemon(models_dir, cache_dir) as daemon:
        demo_walk(daemon)
        daemon.control("iris", "load")
        time.sleep(_LINGER_S)
        assert daemon.stop() == 0
    during_demo = _wanted_out()
    _knock_outside()  # the counters do count: the test checks that this one shows
    print(json.dumps({"during_demo": during_demo, "with_a_stranger": _wanted_out()}))


if __name__ == "__main__":
    main()
