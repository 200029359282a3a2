"""Calls per second over gRPC, beside an echo in the same layout of processes."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from benchmarks import h2load
from benchmarks.figures import Figure, at_least
from benchmarks.rounds import ratio, take_turns
from benchmarks.stand import iris_model, served
from benchmarks.wrk import Load
from e2e.daemon import Daemon
from e2e.grpc_client import Client, Reply, request, tensor

_CONNECTIONS: Final = 4
_STREAMS: Final = 16
# Whatever has come while one batch ran fits into the next, so no call is left for a third.
_SETTINGS: Final = f"""
[defaults]
idle_timeout_secs = 0
max_batch_size = {_CONNECTIONS * _STREAMS}
"""
_ROW: Final = np.array([[5.1, 3.5, 1.4, 0.2]], np.float32)


def measure() -> list[Figure]:
    h2load.ensure_h2load()
    message = request("iris", tensor("X", _ROW))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "iris.onnx").write_bytes(iris_model())
        with (
            served(Path(folder), _SETTINGS) as daemon,
            _echo(_answer(daemon, message)) as echo,
        ):
            addresses = {"snooze": daemon.ready["grpc"], "echo": echo}

            def load(name: str, seconds: int) -> Load:
                return h2load.call(addresses[name], message, _CONNECTIONS, _STREAMS, seconds)

            rounds = take_turns(addresses, load, seconds=2)
            _check_all_answered(daemon)
    snooze, bare = rounds.requests_per_s("snooze"), rounds.requests_per_s("echo")
    raw, share = {"snooze": snooze, "echo": bare}, ratio(snooze, bare)
    where = f"{_CONNECTIONS} connections x {_STREAMS} streams"
    return [
        Figure(what=f"{where}, iris", value=median(snooze), unit="calls/s"),
        Figure(what=f"{where}, echo", value=median(bare), unit="calls/s"),
        rounds.disturbance(where),
        Figure(what=f"{where}, iris / echo", value=share, unit="", bound=at_least(0.6), raw=raw),
    ]


def _answer(daemon: Daemon, message: bytes) -> bytes:
    with Client(daemon.ready["grpc"]) as client:
        reply = client.call(h2load.INFER, message)
    assert isinstance(reply, Reply), reply
    return reply.body


def _check_all_answered(daemon: Daemon) -> None:
    """h2load takes a call that ends badly for a good one, because its HTTP status is 200."""
    metrics = daemon.metrics()
    failed, asked = (metrics[f'snoozeml_requests_total{{status="{s}"}}'] for s in ("error", "all"))
    if failed > asked / 100:  # it cancels what is under way when its time is over
        raise RuntimeError(f"{failed:.0f} of {asked:.0f} calls failed")


@contextmanager
def _echo(answer: bytes) -> Iterator[str]:
    """The echo, which answers with these bytes; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.grpc_echo"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as stdin:
            stdin.write(answer)
        yield process.stdout.readline().decode().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
