"""The daemon as a process, held by the collar."""

import contextlib
import json
import os
import select
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any, Final, Self
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from e2e import processes
from e2e.client import Address, AsyncConnection, Connection, Reply, infer_body
from e2e.eventually import eventually

_START_S: Final = 20.0
_STOP_S: Final = 30.0

# The modules that the daemon's children run.
_SPARE: Final = "snoozeml.worker.spare"
_WORKER: Final = "snoozeml.worker"

Json = Any


class Daemon:
    """`snooze serve` over one folder of models, on a free port of the loopback interface.

    Attributes:
        pid: the daemon itself; see `tree` for its descendants too.
        stderr: every line it has logged so far.
    """

    def __init__(
        self,
        models_dir: Path,
        cache_dir: Path,
        *,
        env: Mapping[str, str] | None = None,
        grpc_port: int = 0,
    ) -> None:
        ready, ready_fd = os.pipe()
        command = [sys.executable, "-m", "snoozeml", "serve", "--host", "127.0.0.1", "--port", "0"]
        command += [
            "--grpc-port",
            str(grpc_port),
            "--models-dir",
            str(models_dir),
            "--log-format",
            "json",
        ]
        self._process = subprocess.Popen(
            [*command, "--ready-fd", str(ready_fd)],
            env={**os.environ, "SNOOZE_CACHE_DIR": str(cache_dir), **(env or {})},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[ready_fd],
        )
        os.close(ready_fd)
        self.pid: Final = self._process.pid
        self.cache_dir: Final = cache_dir
        self.stderr: Final[list[str]] = []
        self._seen: set[int] = set()
        self._log_reader = threading.Thread(target=self._read_log, daemon=True)
        self._log_reader.start()
        with os.fdopen(ready, "rb") as pipe:
            self.ready: Final[dict[str, Any]] = json.loads(self._ready_line(pipe.fileno()))
        host, _, port = self.ready["http"].rpartition(":")
        self.address: Final[Address] = (host, int(port))

    def _ready_line(self, fd: int) -> bytes:
        readable, _, _ = select.select([fd], [], [], _START_S)
        line = os.read(fd, 4096) if readable else b""
        if not line:
            self.kill()
            raise AssertionError("the daemon did not get ready:\n" + "\n".join(self.stderr))
        return line

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        with contextlib.closing(self._process.stderr) as stderr:
            for line in stderr:
                self.stderr.append(line.rstrip("\n"))

    # Requests

    def connect(self, tls: ssl.SSLContext | None = None) -> Connection:
        return Connection(self.address, tls)

    async def connect_async(self) -> AsyncConnection:
        return await AsyncConnection.open(self.address)

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request on a connection of its own."""
        with self.connect() as connection:
            return connection.request(method, target, body, headers)

    def infer(
        self,
        model_id: str,
        *inputs: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Reply:
        """Infer; `more` are further members of the request's body."""
        return self.request("POST", path(model_id, "infer"), infer_body(*inputs, **more), headers)

    def control(self, model_id: str, verb: str) -> Json:
        """load, unload, pin or unpin; must succeed."""
        reply = self.request("POST", path(model_id, verb))
        assert reply.status == 200, reply
        return reply.json()

    def refresh(self) -> Json:
        reply = self.request("POST", "/v1/models/refresh")
        assert reply.status == 200, reply
        return reply.json()

    def model(self, model_id: str) -> dict[str, Any]:
        reply = self.request("GET", path(model_id))
        assert reply.status == 200, reply
        model: dict[str, Any] = reply.json()
        return model

    def metrics(self, headers: Mapping[str, str] | None = None) -> dict[str, float]:
        """Every sample by its name with its labels, such as `a_total{status="all"}`."""
        reply = self.request("GET", "/metrics", headers=headers)
        assert reply.status == 200, reply
        return {
            sample.name + _labels_text(sample.labels): sample.value
            for family in text_string_to_metric_families(reply.body.decode())
            for sample in family.samples
        }

    # Processes

    def tree(self) -> list[int]:
        """The daemon and every process below it."""
        pids = processes.tree(self.pid)
        self._seen.update(pids)
        return pids

    def spares(self) -> list[int]:
        """The process that workers are forked from, if there is one now."""
        return [pid for pid in self.tree() if self._runs(pid, _SPARE) and self._is_child(pid)]

    def spare(self) -> int:
        (pid,) = self.spares()
        return pid

    def workers(self) -> list[int]:
        """The processes that hold a model: forks of the spare, and workers executed afresh."""
        spares = self.spares()
        return [
            pid
            for pid in self.tree()
            if processes.parent(pid) in spares or (self._runs(pid, _WORKER) and self._is_child(pid))
        ]

    def worker(self) -> int:
        """The one worker there is."""
        (pid,) = self.workers()
        return pid

    def _is_child(self, pid: int) -> bool:
        return processes.parent(pid) == self.pid

    def _runs(self, pid: int, module: str) -> bool:
        return module in processes.command_line(pid)

    # The log

    def log(self) -> list[dict[str, Any]]:
        """What it has logged so far, as records; lines that are not JSON are left out."""
        return [json.loads(line) for line in list(self.stderr) if line.startswith("{")]

    # The end

    def send_signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    def wait(self, within_s: float = _STOP_S) -> int:
        """The exit code; every process that it had is gone when this returns.

        Raises:
            subprocess.TimeoutExpired: the daemon is still there.
            AssertionError: the daemon is gone but left a process behind.
        """
        code = self._process.wait(within_s)
        eventually(lambda: not self._left_behind(), "no process is left behind", within_s=5)
        self._log_reader.join(5)
        return code

    def stop(self, number: Signals = SIGTERM) -> int:
        self.tree()
        self.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """End whatever is left of it, when a test failed half-way."""
        self._process.kill()
        self._process.wait()
        for pid in self._left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)

    def _left_behind(self) -> list[int]:
        """Processes below the daemon that have been seen and still run."""
        return [pid for pid in self._seen - {self.pid} if processes.alive(pid)]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.tree()
        self.kill()


def path(model_id: str, *rest: str) -> str:
    return "/".join(["/v1/models", quote(model_id, safe=""), *rest])


def _labels_text(labels: Mapping[str, str]) -> str:
    pairs: Sequence[str] = [f'{name}="{value}"' for name, value in sorted(labels.items())]
    return "{" + ",".join(pairs) + "}" if pairs else ""
