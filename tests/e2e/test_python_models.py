"""Python models behind the daemon: whatever their code does, the daemon and the others go on."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

import models
from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually
from python_models import python_model

APART: dict[str, Any] = {"env": {"APART": "yes"}}
EVERYWHERE = pytest.mark.parametrize("manifest", [{}, APART], ids=["inside", "apart"])
MIB = 2**20


def x(*values: float) -> dict[str, Any]:
    return tensor("x", [len(values), 1], values)


def children(daemon: Daemon) -> list[int]:
    """Processes that workers have started."""
    workers = daemon.workers()
    return [pid for pid in daemon.tree() if processes.parent(pid) in workers]


def logged(daemon: Daemon, words: str) -> bool:
    return any(words in line for line in list(daemon.stderr))


@EVERYWHERE
def test_many_clients_are_answered_by_shared_runs(
    serve: Serve, models_dir: Path, manifest: dict[str, Any]
) -> None:
    python_model(models_dir / "own", head="import time", predict="""
        time.sleep(0.01)
        return {"y": inputs["x"] * 2}
        """, **manifest)  # fmt: skip
    daemon = serve()
    daemon.control("own", "load")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: daemon.infer("own", x(n)), range(64)))
    assert [reply.outputs() for reply in replies] == [{"y": [2 * n]} for n in range(64)]
    assert max(int(reply.headers["x-snooze-batch-size"]) for reply in replies) > 1


def test_the_model_object_shows_what_the_manifest_declares(serve: Serve, models_dir: Path) -> None:
    python_model(models_dir / "open")
    declared = [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}]
    python_model(models_dir / "declared", inputs=declared)
    daemon = serve()
    for name in ("open", "declared"):
        daemon.control(name, "load")
        model = daemon.model(name)
        assert model["onnx_path"] == str(models_dir.resolve() / name)
        assert (model["format"], model["state"]) == ("python", "ready")
        assert (model["inputs"], model["outputs"]) == (
            declared if name == "declared" else None,
            None,
        )


@EVERYWHERE
def test_every_failure_has_its_status_and_the_traceback_stays_in_the_log(
    serve: Serve, models_dir: Path, manifest: dict[str, Any]
) -> None:
    bodies = {
        1: ('raise ValueError("negative")', 400, "invalid_input"),
        2: ('raise RuntimeError("broken")', 500, "inference_failed"),
        3: ("import sys; sys.exit(0)", 500, "inference_failed"),
        4: ('return {"y": object()}', 500, "inference_failed"),
        5: ("return None", 500, "inference_failed"),
    }
    cases = "\n".join(f"if inputs['x'][0, 0] == {n}: {body}" for n, (body, *_) in bodies.items())
    python_model(models_dir / "own", f'{cases}\nreturn {{"y": inputs["x"]}}', **manifest)
    daemon = serve()
    for n, (_, status, code) in bodies.items():
        reply = daemon.infer("own", x(n))
        assert (reply.status, reply.json()["code"]) == (status, code)
        assert b"Traceback" not in reply.body
        assert b"snooze_model.py" not in reply.body
    assert daemon.infer("own", x(9)).outputs() == {"y": [9]}
    assert daemon.model("own")["loads"] == 1
    for words in ("ValueError: negative", "RuntimeError: broken"):
        eventually(partial(logged, daemon, words), "the traceback is in the log")


@EVERYWHERE
def test_out_of_memory_is_tried_again_then_told(
    serve: Serve, models_dir: Path, manifest: dict[str, Any]
) -> None:
    python_model(models_dir / "own", 'raise RuntimeError("CUDA out of memory")', **manifest)
    daemon = serve()
    reply = daemon.infer("own", x(1))
    assert (reply.status, reply.json()["code"]) == (503, "out_of_memory")
    assert "out of memory" in reply.json()["error"]


BROKEN: dict[str, dict[str, Any]] = {
    "no-class": {"class": "Nothing"},
    "no-module": {"head": "import no_such_module"},
    "syntax": {"head": "def"},
    "raises": {"load": "1 / 0"},
    "exits": {"load": "import sys; sys.exit(0)"},
    "dies": {"load": "import os; os._exit(3)"},
    "crashes": {"load": "import os; os.kill(os.getpid(), 11)"},
    "no-python": {"python": "/nowhere/bin/python"},
    "no-entry": {"entrypoint": "other.py"},
    "bad-key": {"pyton": "x"},
}


def test_models_that_cannot_be_loaded_say_why_and_disturb_nobody(
    serve: Serve, models_dir: Path
) -> None:
    for name, how in BROKEN.items():
        python_model(models_dir / name, **how)
    python_model(models_dir / "good")
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    for name in BROKEN:
        reply = daemon.infer(name, x(1))
        assert (reply.status, reply.json()["code"]) == (503, "model_failed"), (name, reply)
        assert daemon.model(name)["last_error"]
        assert daemon.infer("good", x(1)).outputs() == {"y": [2]}
        assert daemon.infer("echo", x(1)).status == 200
    assert daemon.model("good")["loads"] == daemon.model("echo")["loads"] == 1


@EVERYWHERE
def test_an_endless_loop_is_ended(serve: Serve, models_dir: Path, manifest: dict[str, Any]) -> None:
    python_model(
        models_dir / "own",
        'while inputs["x"][0, 0] < 0: pass\nreturn {"y": inputs["x"]}',
        **manifest,
    )
    python_model(models_dir / "good")
    daemon = serve("[models.own]\nexec_timeout_secs = 1\n")
    reply = daemon.infer("own", x(-1))
    assert reply.status == 503
    assert daemon.infer("own", x(1)).outputs() == {"y": [1]}
    assert daemon.infer("good", x(1)).outputs() == {"y": [2]}
    eventually(lambda: len(children(daemon)) <= 1, "the looping process is gone, too")


@EVERYWHERE
@pytest.mark.parametrize("end", ["os._exit(3)", "ctypes.string_at(0)"], ids=["exits", "crashes"])
def test_a_model_that_dies_is_loaded_again(
    serve: Serve, models_dir: Path, manifest: dict[str, Any], end: str
) -> None:
    python_model(
        models_dir / "own",
        f'if inputs["x"][0, 0] < 0: {end}\nreturn {{"y": inputs["x"]}}',
        head="import ctypes, os",
        **manifest,
    )
    python_model(models_dir / "good")
    daemon = serve()
    assert daemon.infer("own", x(1)).outputs() == {"y": [1]}
    reply = daemon.infer("own", x(-1))
    assert (reply.status, reply.json()["code"]) == (503, "worker_crashed")
    how = "exited with status 3" if "exit" in end else "was ended by SIGSEGV"
    assert how in reply.json()["error"]
    assert daemon.infer("own", x(1)).outputs() == {"y": [1]}
    assert daemon.infer("good", x(1)).outputs() == {"y": [2]}


def test_a_process_of_its_own_counts_and_goes_with_its_worker(
    serve: Serve, models_dir: Path
) -> None:
    python_model(models_dir / "own", load=f"self.kept = bytearray(b'x') * {64 * MIB}", **APART)
    daemon = serve()
    daemon.control("own", "load")
    (child,) = children(daemon)
    assert processes.alive(child)
    assert daemon.model("own")["memory_bytes"] > 64 * MIB
    assert daemon.control("own", "unload")["freed_bytes"] > 64 * MIB
    eventually(lambda: not processes.alive(child), "the process is gone")

    daemon.control("own", "load")
    (child,) = children(daemon)
    os.kill(child, SIGKILL)
    eventually(lambda: daemon.model("own")["state"] == "idle", "the death is noticed")
    assert "SIGKILL" in daemon.model("own")["last_error"]


def test_nothing_is_left_when_the_daemon_is_killed(serve: Serve, models_dir: Path) -> None:
    python_model(models_dir / "own", "while True: pass", **APART)
    daemon = serve()
    daemon.control("own", "load")
    (child,) = children(daemon)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(daemon.infer, "own", x(1))
        eventually(lambda: daemon.model("own")["state"] == "busy", "it runs")
        daemon.send_signal(SIGKILL)
        with pytest.raises((ConnectionError, OSError)):
            asked.result()
    eventually(lambda: not processes.alive(child), "the process is gone")


SESSION = f"""
    if not hasattr(self, "pid"):
        ready, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            kept = b"x" * {64 * MIB}
            os.write(write, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
    while inputs["x"][0, 0] == 7:
        time.sleep(1)
    return {{"y": inputs["x"] * 0 + self.pid}}
    """


@pytest.mark.parametrize("how", ["unloaded", "hung", "orphaned"])
def test_what_the_model_has_started_in_a_session_of_its_own_goes_too(
    serve: Serve, models_dir: Path, how: str
) -> None:
    python_model(models_dir / "own", SESSION, head="import os, time")
    daemon = serve("[defaults]\nexec_timeout_secs = 1\n")
    child = int(daemon.infer("own", x(1)).outputs()["y"][0])
    assert daemon.model("own")["memory_bytes"] > 64 * MIB
    if how == "unloaded":
        assert daemon.control("own", "unload")["freed_bytes"] > 64 * MIB
        assert not processes.alive(child)
    elif how == "hung":
        assert daemon.infer("own", x(7)).status == 503
        assert not processes.alive(child)
    else:
        daemon.send_signal(SIGKILL)
        eventually(lambda: not processes.alive(child), "the process is gone")


def test_what_the_code_prints_is_in_the_log(serve: Serve, models_dir: Path) -> None:
    python_model(models_dir / "own", 'print("hello from predict"); return {"y": 1}', batching=False)
    daemon = serve()
    assert daemon.infer("own", x(1)).outputs() == {"y": [1]}
    eventually(lambda: logged(daemon, "hello from predict"), "it is in the log")


def test_helpers_of_the_same_name_do_not_meet(serve: Serve, models_dir: Path) -> None:
    for n, name in enumerate(("one", "two")):
        python_model(models_dir / name, 'return {"y": helper.N}', head="import helper")
        (models_dir / name / "helper.py").write_text(f"N = {n}")
    daemon = serve()
    for n, name in enumerate(("one", "two")):
        assert daemon.infer(name, x(1)).outputs() == {"y": [n]}


def test_new_weights_are_loaded_on_refresh_and_not_before(serve: Serve, models_dir: Path) -> None:
    folder = python_model(
        models_dir / "own",
        'return {"y": self.weight}',
        load='self.weight = float(open(model_dir + "/weight.txt").read())',
    )
    (folder / "weight.txt").write_text("1")
    daemon = serve()
    assert daemon.infer("own", x(1)).outputs() == {"y": [1]}
    worker = daemon.worker()
    (folder / "weight.txt").write_text("2.5")
    time.sleep(0.1)
    assert daemon.infer("own", x(1)).outputs() == {"y": [1]}
    daemon.refresh()
    assert daemon.infer("own", x(1)).outputs() == {"y": [2.5]}
    assert daemon.worker() != worker
    worker = daemon.worker()
    daemon.refresh()
    assert daemon.infer("own", x(1)).outputs() == {"y": [2.5]}
    assert daemon.worker() == worker, "nothing has changed"
