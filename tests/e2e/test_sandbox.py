"""Confined Python models behind the daemon, which goes on whatever they try."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.eventually import eventually
from python_models import python_model
from snoozeml.worker.sandbox import landlock

ROW = tensor("x", [1, 1], [1])

needs_landlock = pytest.mark.skipif(
    bool(landlock.missing()), reason="this kernel cannot confine anybody"
)

HOSTILE = """
    tried = {}
    for name, attack in {
        "network": lambda: socket.create_connection(("127.0.0.1", PORT)),
        "kill": lambda: os.kill(os.getppid(), 9),
        "kill the daemon": lambda: os.kill(DAEMON, 9),
        "read": lambda: open(SECRET).read(),
        "write": lambda: open(SECRET, "w"),
        "environment": lambda: open(f"/proc/{DAEMON}/environ").read(),
        "fork": lambda: [os.fork() for _ in range(100)],
        "fill": lambda: [open(f"{tempfile.gettempdir()}/{n}", "wb").write(bytes(2**20))
                         for n in range(10_000)],
    }.items():
        try:
            attack()
            tried[name] = "done"
        except OSError as error:
            tried[name] = type(error).__name__
    return {"y": [json.dumps({"tried": tried, "env": sorted(os.environ)})]}
"""


@needs_landlock
def test_a_hostile_model_is_refused_everything(
    serve: Serve, models_dir: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    models.identity_model(models_dir / "echo.onnx")
    python_model(models_dir / "evil", "", head="")
    daemon = serve("[models.evil]\nsandbox = true\n", SNOOZE_SECRET="s3cret", MY_TOKEN="t0ken")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        known = f"PORT={listener.getsockname()[1]}; DAEMON={daemon.pid}; SECRET={str(secret)!r}"
        head = f"import json, os, socket, tempfile\n{known}"
        python_model(models_dir / "evil", HOSTILE, head=head)
        assert daemon.infer("echo", ROW).status == 200
        told = json.loads(daemon.infer("evil", ROW).outputs()["y"][0])
    assert {**told["tried"], "fill": ""} == {
        "network": "PermissionError",
        "kill": "PermissionError",
        "kill the daemon": "PermissionError",
        "read": "PermissionError",
        "write": "PermissionError",
        "environment": "PermissionError",
        "fork": "PermissionError",
        "fill": "",
    }
    assert told["tried"]["fill"] in ("OSError", "FileNotFoundError")
    assert not {"SNOOZE_SECRET", "SNOOZE_CACHE_DIR", "MY_TOKEN"} & set(told["env"])
    assert secret.read_text() == "secret"
    assert daemon.infer("echo", ROW).status == 200
    assert daemon.model("evil")["memory_bytes"] > 2**20  # the daemon can still count it
    worker = next(pid for pid in daemon.workers() if processes.parent(pid) == daemon.pid)
    assert b"s3cret" not in Path(f"/proc/{worker}/environ").read_bytes()
    daemon.control("evil", "unload")
    eventually(lambda: not processes.alive(worker), "it is gone")


@needs_landlock
def test_the_default_holds_for_all_python_models_and_for_no_others(
    serve: Serve, models_dir: Path
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    python_model(
        models_dir / "own",
        'return {"y": [str(os.getenv("HOME"))]}',
        head="import os",
    )
    daemon = serve("[defaults]\nsandbox = true\n")
    assert daemon.infer("echo", ROW).status == 200
    assert daemon.infer("own", ROW).outputs()["y"] == [str(daemon.cache_dir / "scratch")]


CONFINE_WITHOUT = """
import sys
from snoozeml.core.plan import Sandbox
from snoozeml.worker import sandbox
sandbox.landlock.missing = lambda: ("Landlock (Linux 6.2 or newer)",)
wanted = Sandbox(required=sys.argv[1] == "True", scratch=sys.argv[2], memory_bytes=2**30)
print(sandbox.confine(wanted))
"""


@pytest.mark.parametrize("required", [True, False])
def test_what_the_system_lacks_is_an_error_unless_said_otherwise(
    tmp_path: Path, required: bool
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CONFINE_WITHOUT, str(required), str(tmp_path)],
        capture_output=True, text=True, env={**os.environ}, check=False,
    )  # fmt: skip
    if required:
        assert "sandbox = true, but this system lacks Landlock" in ran.stderr
        assert "best-effort" in ran.stderr
    else:
        assert "Landlock (Linux 6.2 or newer)" in ran.stdout, ran.stderr


@needs_landlock
def test_a_model_that_prints_without_end_is_slowed_down(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    python_model(models_dir / "chatty", """
        import time
        end = time.monotonic() + 3
        while time.monotonic() < end:
            print("x" * 1000)
        return {"y": inputs["x"]}
        """)  # fmt: skip
    daemon = serve("[models.chatty]\nsandbox = true\n")
    daemon.control("chatty", "load")
    assert daemon.infer("chatty", ROW).status == 200
    logged = sum(len(line) for line in list(daemon.stderr))
    assert 0 < logged < 2 * 2**20  # a pipe's content or two a second, where gigabytes were printed
    assert daemon.infer("echo", ROW).status == 200


@needs_landlock
def test_an_answer_without_measure_ends_the_worker_and_not_the_daemon(
    serve: Serve, models_dir: Path
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    python_model(
        models_dir / "vast",
        'return {"y": np.full((len(inputs["x"]), 30_000_000), 0.1234567891)}',
        head="import numpy as np",
    )
    daemon = serve("[models.vast]\nsandbox = true\n")
    before = processes.resident_bytes(daemon.pid)
    assert daemon.infer("vast", ROW).json()["code"] in ("worker_crashed", "out_of_memory")
    assert processes.resident_bytes(daemon.pid) < before + 64 * 2**20
    assert daemon.infer("echo", ROW).status == 200


SHOUT = """
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                line = socket.socket(fileno=os.dup(fd))
                for _ in range(1000):
                    line.sendall(b"\\xff" * 2**20)
        except OSError:
            pass
    return {"y": inputs["x"]}
"""


@needs_landlock
def test_a_model_that_shouts_at_its_worker_is_not_listened_to(
    serve: Serve, models_dir: Path
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    python_model(models_dir / "loud", SHOUT, head="import os, socket, stat")
    daemon = serve("[models.loud]\nsandbox = true\n")
    daemon.control("loud", "load")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(daemon.infer, "loud", ROW)
        largest = 0
        while not asking.done():
            sizes = [processes.resident_bytes(pid) for pid in daemon.workers()]
            largest = max([largest, *sizes])
    assert asking.result().json()["code"] == "worker_crashed", asking.result()
    assert largest < 400 * 2**20
    assert daemon.infer("echo", ROW).status == 200
