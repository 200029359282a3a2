"""The spare: a process with numpy and ONNX Runtime at hand and no model, which forks workers.

Fork to first answer takes a fifth of the time that a fresh interpreter needs. The spare holds no
thread and no model, so its memory is the same at every fork, and forking it is safe.

It is steered over a socket that keeps message boundaries, with JSON either way:

    → {"fork": 7} with two descriptors: the worker's socket, the pipe for what it prints
    ← {"forked": 7, "pid": 4711}   or   {"refused": 7, "why": "…"}
    ← {"exited": 4711, "status": -9}          once the child has been reaped

End-of-file on the socket means that the daemon is done with it.
"""

import argparse
import contextlib
import gc
import os
import select
import signal
import socket
import sys
from pathlib import Path

import msgspec

MESSAGE_BYTES = 4096


def _why_unsafe_to_fork() -> str | None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    return None if threads == 1 else f"the spare has {threads} threads"


def _become_worker(control: socket.socket, sock_fd: int, output_fd: int) -> None:
    # A group of its own, so that it can be ended together with what it starts. Not a session of its
    # own: Linux may share the processor out between sessions first (autogroup), and then a thread
    # that is nice would be so to its own process only.
    os.setpgid(0, 0)
    control.close()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(output_fd)
    from snoozeml.worker.main import serve

    serve(socket.socket(fileno=sock_fd))


def _fork(control: socket.socket, token: int, sock_fd: int, output_fd: int) -> dict[str, object]:
    why = _why_unsafe_to_fork()
    if why is not None:
        return {"refused": token, "why": why}
    try:
        pid = os.fork()
    except OSError as error:
        return {"refused": token, "why": f"fork failed: {error.strerror}"}
    if pid == 0:
        status = 1
        try:
            _become_worker(control, sock_fd, output_fd)
            status = 0
        except BaseException:  # whatever it is, a child must never return into the spare's loop
            sys.excepthook(*sys.exc_info())
        finally:
            # No interpreter shutdown: nothing is left to flush, and the spare's atexit hooks are
            # not the child's.
            os._exit(status)
    with contextlib.suppress(OSError):  # here too, so that it is done before anybody hears of it
        os.setpgid(pid, pid)
    return {"forked": token, "pid": pid}


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(control, {"exited": pid, "status": os.waitstatus_to_exitcode(status)})


def _tell(control: socket.socket, message: dict[str, object]) -> None:
    control.sendall(msgspec.json.encode(message))


def _serve_one(control: socket.socket) -> bool:
    """Read one message and obey; False at end-of-file."""
    data, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
    if not data:
        return False
    try:
        _tell(control, _fork(control, msgspec.json.decode(data)["fork"], *fds))
    finally:
        for fd in fds:
            os.close(fd)
    return True


def run(control: socket.socket) -> None:
    """Fork workers on request until the other end of `control` is closed."""
    # What every worker needs is imported and set up once, here.
    import snoozeml.worker.main  # noqa: F401
    from snoozeml.worker.engines.onnx import warm_up

    warm_up()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the daemon
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # What is imported stays for good: moving it out of the collector's sight keeps a collection in
    # a child from touching, and so copying, the pages shared with the spare.
    gc.collect()
    gc.freeze()
    _tell(control, {"ready": os.getpid()})
    watched: list[socket.socket | int] = [control, wake_read]
    while True:
        readable, _, _ = select.select(watched, [], [])
        if wake_read in readable:
            os.read(wake_read, MESSAGE_BYTES)
            _reap(control)
        if control in readable and not _serve_one(control):
            return


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m snoozeml.worker.spare")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the control socket")
    control = socket.socket(fileno=parser.parse_args().fd)
    # When the daemon is gone, so is the reason to stay.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        run(control)


if __name__ == "__main__":
    main()
