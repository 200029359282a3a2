"""The internet sockets of processes, read from /proc."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

_TABLES = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
_SAMPLE_EVERY_S = 0.002  # a name lookup or a connection attempt that fails takes longer


class Socket(NamedTuple):
    table: str
    local: str
    remote: str

    @property
    def stays_home(self) -> bool:
        """Bound to the loopback interface, and with nobody or loopback at the other end."""
        local, remote = ip_address(self.local), ip_address(self.remote)
        return local.is_loopback and (remote.is_loopback or remote.is_unspecified)


def internet_sockets(pids: Iterable[int]) -> set[Socket]:
    """Sockets that the processes hold now, once they are bound or connected."""
    held = {inode for pid in pids for inode in _socket_inodes(pid)}
    return {
        Socket(table, _address(fields[1]), _address(fields[2]))
        for table in _TABLES
        for fields in _rows(Path("/proc/net") / table)
        if fields[9] in held
    }


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except FileNotFoundError:  # a kernel without IPv6
        return []


def _socket_inodes(pid: int) -> Iterator[str]:
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(fd.readlink())):
                yield match[1]
    except (FileNotFoundError, ProcessLookupError):
        return  # it ended, or closed the descriptor, while we looked


def _address(text: str) -> str:
    """The address in a row such as `0100007F:1F90`: hexadecimal words in the machine's order."""
    words = bytes.fromhex(text.partition(":")[0])
    raw = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    if len(raw) == 4:
        return str(IPv4Address(raw))
    address = IPv6Address(raw)
    return str(address.ipv4_mapped or address)


@contextmanager
def watched(tree: Callable[[], list[int]]) -> Iterator[set[Socket]]:
    """Collect every socket that the processes of a tree hold at any time during the block."""
    seen: set[Socket] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.update(internet_sockets(tree()))
            time.sleep(_SAMPLE_EVERY_S)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
