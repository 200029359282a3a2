"""A confined worker with a hostile model: each thing that it tries is refused, and it lives on."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from component.harness import WorkerProcess, spec, worker
from python_models import plan, python_model
from snoozeml.core.plan import Sandbox
from snoozeml.wire.frames import Kind
from snoozeml.worker.sandbox import landlock
from snoozeml.worker.sandbox.syscalls import NUMBERS

pytestmark = pytest.mark.skipif(
    bool(landlock.missing()), reason="this kernel cannot confine anybody"
)

MIB = 2**20

TRY = """
outcomes = []
for text in inputs["x"]:
    try:
        outcomes.append(str(eval(text)))
    except BaseException as error:
        outcomes.append(type(error).__name__)
return {"y": outcomes}
"""
HEAD = """
import ctypes, fcntl, mmap, os, resource, signal, socket, subprocess, tempfile, threading
import urllib.request
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
def errno(result):
    return os.strerror(ctypes.get_errno()) if result == -1 else result
def fill(folder):
    for number in range(1000):
        Path(folder, str(number)).write_bytes(bytes(2**20))
def threads():
    for _ in range(100_000):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "model"


@contextmanager
def confined(
    folder: Path, scratch: Path, memory_bytes: int = 1024 * MIB
) -> Iterator[WorkerProcess]:
    python_model(folder, TRY, head=HEAD)
    made = plan(folder)
    sandbox = Sandbox(required=True, scratch=str(scratch), memory_bytes=memory_bytes)
    with worker() as at:
        ready = at.start(replace(spec(made.signature), plan=made, sandbox=sandbox))
        assert ready.kind == Kind.READY, ready
        yield at


def attempts(at: WorkerProcess, *code: str) -> dict[str, str]:
    """What became of each expression: its value, or the exception's name."""
    texts = [{"name": "x", "datatype": "BYTES", "shape": [len(code)], "data": code}]
    (reply,) = at.infer({"inputs": texts})
    return dict(zip(code, reply.values()["y"], strict=True))


def refused(at: WorkerProcess, *code: str) -> None:
    outcomes = attempts(at, *code)
    allowed = {"PermissionError", "Operation not permitted", "Permission denied"}
    assert {c: o for c, o in outcomes.items() if o not in allowed} == {}


def test_the_network_is_out_of_reach(folder: Path, tmp_path: Path) -> None:
    with confined(folder, tmp_path / "scratch") as at:
        refused(
            at,
            "socket.socket()",
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
            "socket.socket(socket.AF_UNIX)",
            "socket.create_connection(('127.0.0.1', 9))",
            "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
            "errno(libc.syscall(425, 8, None))",  # io_uring, which has sockets of its own
        )
        outcome = attempts(
            at, "urllib.request.urlopen('http://127.0.0.1:9')", "socket.socketpair()"
        )
        assert [text[:8] for text in outcome.values()] == ["URLError", "(<socket"]


def test_files_that_are_not_its_own_can_be_neither_read_nor_changed(
    folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    with confined(folder, tmp_path / "scratch") as at:
        own = f"{str(folder)!r}"
        refused(
            at,
            "open('/etc/shadow')",
            f"open({str(secret)!r})",
            f"os.listdir({str(Path.home())!r})",
            "os.listdir('/home')",
            "os.listdir('/proc')",
            "os.listdir('/tmp')",
            f"open({str(secret)!r}, 'w')",
            f"os.truncate({str(secret)!r}, 0)",
            f"os.remove({str(secret)!r})",
            f"os.chmod({str(secret)!r}, 0o777)",
            f"os.utime({str(secret)!r})",
            f"os.rename({str(secret)!r}, {str(secret)!r} + 'x')",
            f"open({own} + '/new', 'w')",
            f"open({own} + '/snooze_model.py', 'a')",
            f"os.remove({own} + '/snooze_model.py')",
            f"os.symlink('/etc/shadow', {own} + '/link')",
            "open('/tmp/new', 'w')",
            "open('/dev/shm/new', 'w')",
            "open('/usr/new', 'w')",
            "open('/proc/self/mem', 'r+b')",
        )
        assert attempts(at, f"len(open({own} + '/snooze_model.py').read()) > 100") == {
            f"len(open({own} + '/snooze_model.py').read()) > 100": "True"
        }
    assert secret.read_text() == "secret"


def test_other_processes_are_safe(folder: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        pid = other.pid
        with confined(folder, tmp_path / "scratch") as at:
            refused(
                at,
                f"os.kill({pid}, signal.SIGKILL)",
                f"os.kill({pid}, 0)",
                "os.kill(-1, signal.SIGKILL)",
                "os.killpg(0, signal.SIGKILL)",
                f"signal.pidfd_send_signal(os.pidfd_open({pid}), signal.SIGKILL)",
                f"errno(libc.ptrace(16, {pid}, None, None))",
                f"open('/proc/{pid}/mem')",
                f"open('/proc/{pid}/environ')",
                f"resource.prlimit({pid}, resource.RLIMIT_CPU, (0, 0))",
                f"os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
                f"os.sched_setaffinity({pid}, {{0}})",
                f"fcntl.fcntl(0, fcntl.F_SETOWN, {pid})",
                "fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL)",
            )
            assert set(attempts(at, "os.kill(os.getpid(), 0)").values()) == {"None"}
        assert other.poll() is None
        other.kill()


def test_no_process_is_started(folder: Path, tmp_path: Path) -> None:
    with confined(folder, tmp_path / "scratch") as at:
        refused(
            at,
            "os.fork()",
            "subprocess.run(['true'])",
            "os.posix_spawn('/bin/true', ['true'], {})",
            "errno(libc.vfork())",
            "errno(libc.unshare(0x10000000))",
            "errno(libc.mount(b'none', b'/', b'tmpfs', 0, None))",
        )
        assert set(attempts(at, "os.system('true') != 0").values()) == {"True"}
        lived = "threading.Thread(target=print).start()"
        assert attempts(at, lived) == {lived: "None"}


def test_disk_and_memory_have_bounds(folder: Path, tmp_path: Path) -> None:
    with confined(folder, tmp_path / "scratch") as at:
        scratch = "tempfile.gettempdir()"
        outcomes = attempts(
            at,
            f"fill({scratch})",
            f"len(os.listdir({scratch})) < 70",
            "bytearray(2 * 2**30)",
            "os.getuid()",
            "os.memfd_create('x')",
            "mmap.mmap(-1, 2**20)",
            "libc.shmget(0, 4096, 0o1600)",
            "threads()",
        )
    assert list(outcomes.values()) == [
        "OSError", "True", "MemoryError", str(os.getuid()), "PermissionError",
        "PermissionError", "-1", "RuntimeError",
    ]  # fmt: skip
    assert list((tmp_path / "scratch").iterdir()) == []  # nobody else sees what it wrote


def test_no_privilege_is_left(folder: Path, tmp_path: Path) -> None:
    with confined(folder, tmp_path / "scratch") as at:
        (outcome,) = attempts(at, "libc.prctl(39, 0, 0, 0, 0)").values()
        assert outcome == "1"
        refused(at, "os.setgroups([])", "errno(libc.syscall(161, b'/'))")


def test_a_model_that_kills_itself_takes_nobody_along(folder: Path, tmp_path: Path) -> None:
    with confined(folder, tmp_path / "scratch") as at:
        at.ask({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1],
                            "data": ["os.kill(os.getpid(), signal.SIGKILL)"]}]})  # fmt: skip
        at.flush()
        assert at.ended() == -9


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("there are no headers of the kernel here")
    pairs = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    known = {name: int(number) for name, number in pairs}
    ours = NUMBERS[machine]
    assert {
        name: number for name, number in ours.items() if known.get(name, number) != number
    } == {}
    assert len(ours.keys() & known.keys()) > 60
    assert platform.machine() in NUMBERS
