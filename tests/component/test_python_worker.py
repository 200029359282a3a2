"""A real worker with a Python model, in its own process and in another interpreter."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from component.harness import LONG_S, Reply, WorkerProcess, spec, worker
from python_models import plan, python_model
from snoozeml.wire.frames import Kind

APART = {"env": {"APART": "yes"}}
EVERYWHERE = pytest.mark.parametrize("manifest", [{}, APART], ids=["inside", "apart"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "model"


def x(*values: float, **more: Any) -> dict[str, Any]:
    """A request with one row per value."""
    return {"inputs": [{"name": "x", "shape": [len(values), 1], "data": values}], **more}


def start(at: WorkerProcess, folder: Path, **changes: Any) -> Reply:
    made = plan(folder)
    return at.start(replace(spec(made.signature, **changes), plan=made))


@contextmanager
def serving(folder: Path, **changes: Any) -> Iterator[WorkerProcess]:
    with worker() as at:
        ready = start(at, folder, **changes)
        assert ready.kind == Kind.READY, ready
        yield at


def failing(folder: Path, **changes: Any) -> Reply:
    with worker() as at:
        failed = start(at, folder, **changes)
        assert failed.kind == Kind.LOAD_FAILED, failed
        return failed


@EVERYWHERE
def test_requests_share_a_run(folder: Path, manifest: dict[str, Any]) -> None:
    python_model(
        folder, 'return {"y": inputs["x"] * 2, "label": inputs["x"][:, 0] > 2}', **manifest
    )
    with serving(folder) as at:
        replies = at.infer(x(1), x(2, 3), x(4))
    assert [reply.batch_rows for reply in replies] == [4, 4, 4]
    assert [reply.values() for reply in replies] == [
        {"y": [2], "label": [False]},
        {"y": [4, 6], "label": [False, True]},
        {"y": [8], "label": [True]},
    ]


@EVERYWHERE
def test_batching_off_means_off(folder: Path, manifest: dict[str, Any]) -> None:
    python_model(folder, **manifest, batching=False)
    with serving(folder) as at:
        assert [reply.batch_rows for reply in at.infer(x(1), x(2))] == [1, 1]


@EVERYWHERE
def test_declared_tensors_are_checked(folder: Path, manifest: dict[str, Any]) -> None:
    tensors: dict[str, Any] = {
        "inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
    }
    python_model(folder, 'return {"y": inputs["x"] / 2}', **manifest, **tensors)
    with serving(folder) as at:
        good, fraction, name = at.infer(x(1), x(1.5), {"inputs": []})
    assert good.body["outputs"][0]["datatype"] == "FP32"
    assert good.values() == {"y": [0.5]}
    assert "wants INT64" in fraction.body["message"]
    assert "missing in inputs: 'x'" in name.body["message"]


@EVERYWHERE
def test_every_output_arrives_in_its_datatype(folder: Path, manifest: dict[str, Any]) -> None:
    types = ["bool", *[f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)]]
    types += ["float16", "float32", "float64"]
    python_model(
        folder,
        f"""
        import numpy as np
        outputs = {{name: np.ones((2, 1), name) for name in {types}}}
        return outputs | {{"text": np.array([["ä"], ["b"]]), "list": [[1.5], [2]]}}
        """,
        **manifest,
    )
    with serving(folder) as at:
        (reply,) = at.infer(x(1, 2))
    datatypes = {o["name"].upper().replace("FLOAT", "FP"): o for o in reply.body["outputs"]}
    assert all(o["datatype"] == name for name, o in datatypes.items() if name.isalnum() and
               name not in ("TEXT", "LIST"))  # fmt: skip
    assert datatypes["TEXT"]["datatype"] == "BYTES"
    assert datatypes["TEXT"]["data"] == ["ä", "b"]
    assert datatypes["LIST"]["datatype"] == "FP64"
    assert len(datatypes) == len(types) + 2


@EVERYWHERE
def test_text_comes_in_as_str(folder: Path, manifest: dict[str, Any]) -> None:
    python_model(
        folder,
        """
        assert all(type(text) is str for text in inputs["x"])
        return {"y": [len(text) for text in inputs["x"]]}
        """,
        **manifest,
    )
    with serving(folder) as at:
        (reply,) = at.infer({"inputs": [{"name": "x", "shape": [2], "data": ["äö", ""]}]})
    assert reply.values() == {"y": [2, 0]}


@EVERYWHERE
def test_inputs_may_be_changed_in_place(folder: Path, manifest: dict[str, Any]) -> None:
    python_model(folder, 'inputs["x"] += 1; return {"y": inputs["x"]}', **manifest)
    values = list(range(200))  # long lists are read by another parser
    with serving(folder) as at:
        short, long = at.infer(x(1), {"inputs": [{"name": "x", "shape": [200], "data": values}]})
    assert short.values() == {"y": [2]}
    assert long.values()["y"][-1] == 200


@EVERYWHERE
def test_a_buffer_that_the_model_uses_again_mixes_nothing_up(
    folder: Path, manifest: dict[str, Any]
) -> None:
    python_model(
        folder,
        """
        np.copyto(self.kept[: len(inputs["x"])], inputs["x"])
        return {"y": self.kept[: len(inputs["x"])]}
        """,
        head="import numpy as np",
        load="self.kept = np.zeros((100, 1))",
        **manifest,
    )
    with serving(folder, max_batch_size=2) as at:
        a, b, big = at.infer(x(1), x(2), x(3, 4, 5, 6, 7))
    assert [reply.values()["y"] for reply in (a, b, big)] == [[1], [2], [3, 4, 5, 6, 7]]


@EVERYWHERE
def test_whatever_is_printed_goes_elsewhere(
    folder: Path, manifest: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    python_model(
        folder,
        """
        print("from predict")
        os.write(1, b"to descriptor 1\\n")
        os.system("echo from a shell")
        ctypes.CDLL(None).puts(b"from C")
        ctypes.CDLL(None).fflush(None)
        return {"y": inputs["x"]}
        """,
        head='import ctypes, os, sys\nprint("from import")',
        load='print("from load", file=sys.stderr)',
        **manifest,
    )
    with serving(folder) as at:
        assert [reply.values() for reply in at.infer(x(1), x(2))] == [{"y": [1]}, {"y": [2]}]
    printed = capfd.readouterr()
    for words in ("import", "predict", "descriptor", "shell", "C"):
        assert words in printed.out
    assert "from load" in printed.err


ERRORS = [
    ('raise ValueError("negative")', "invalid_input", "ValueError: negative"),
    ('return {"y": inputs["z"]}', "invalid_input", "KeyError: 'z' in predict, given 'x'"),
    ('raise MemoryError', "out_of_memory", "out of memory"),
    ('raise RuntimeError("CUDA out of memory")', "out_of_memory", "out of memory"),
    ('raise RuntimeError("broken")', "inference_failed", "RuntimeError: broken"),
    ('import sys; sys.exit(0)', "inference_failed", "called sys.exit(0)"),
    ('raise KeyboardInterrupt', "inference_failed", "KeyboardInterrupt"),
    ('import nothing', "inference_failed", "No module named 'nothing'"),
    ('self.predict(inputs)', "inference_failed", "RecursionError"),
    ('return None', "inference_failed", "must return a dict of outputs by name, not None"),
    ('return [1]', "inference_failed", "must return a dict of outputs by name, not a list"),
    ('return {}', "inference_failed", "returned no outputs"),
    ('return {"y": None}', "inference_failed", "output 'y' holds None"),
    ('return {"y": [[1], [1, 2]]}', "inference_failed", "output 'y' is no tensor"),
    ('return {"y": 1j}', "inference_failed", "complex128"),
    ('return {1: 1}', "inference_failed", "must name outputs by text"),
    # Half a surrogate pair stands in names of files that are not UTF-8, and cannot be sent.
    (r'raise OSError("no \udcff.bin")', "inference_failed", r"OSError: no \udcff.bin"),
    (r'return {"y": ["\udcff"]}', "inference_failed", "'y' holds text with half a surrogate"),
    (r'return {"\udcff": 1}', "inference_failed", "must name outputs by text"),
    ('raise type("Mute", (Exception,), {"__str__": None})', "inference_failed", "Mute"),
]  # fmt: skip


@EVERYWHERE
def test_errors_are_named_and_the_model_goes_on(folder: Path, manifest: dict[str, Any]) -> None:
    tries = "\n".join(
        f"if inputs['x'][0, 0] == {i}:\n    {body}" for i, (body, _, _) in enumerate(ERRORS)
    )
    python_model(folder, f'{tries}\nreturn {{"y": inputs["x"]}}', **manifest)
    with serving(folder) as at:
        for i, (_, code, message) in enumerate(ERRORS):
            (failed,) = at.infer(x(i))
            assert failed.kind == Kind.ERROR, failed
            assert failed.body["code"] == code, failed
            assert message in failed.body["message"]
            assert str(folder) not in failed.body["message"]
            if message.startswith(("ValueError", "RuntimeError", "KeyError")):
                assert f"{folder}/snooze_model.py" in failed.body["traceback"]
                assert "worker/engines" not in failed.body["traceback"]
        (reply,) = at.infer(x(99))
        assert reply.values() == {"y": [99]}


@EVERYWHERE
def test_a_bad_request_fails_alone(folder: Path, manifest: dict[str, Any]) -> None:
    python_model(
        folder,
        """
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return {"y": inputs["x"]}
        """,
        **manifest,
    )
    with serving(folder) as at:
        good, bad, other = at.infer(x(1), x(-1), x(2))
    assert (good.values(), other.values()) == ({"y": [1]}, {"y": [2]})
    assert bad.body["message"] == "ValueError: negative"


@EVERYWHERE
@pytest.mark.parametrize("returned", ['inputs["x"][:1]', 'inputs["x"].mean()', "[1, 2, 3]"])
def test_wrong_row_counts_never_mix_requests_up(
    folder: Path, manifest: dict[str, Any], returned: str
) -> None:
    python_model(folder, f'return {{"y": {returned}}}', **manifest)
    with serving(folder) as at:
        replies = at.infer(x(1), x(2))
        alone = at.infer(x(1))[0]
        assert [reply.batch_rows for reply in replies] == [1, 1]
        assert replies[0].values() == alone.values()
        assert (
            "run one by one from now on: output 'y' has the shape"
            in (at.notices[0].body["message"])
        )


def test_outputs_may_be_picked_and_differ_from_run_to_run(folder: Path) -> None:
    python_model(
        folder,
        """
        name = "high" if inputs["x"][0, 0] > 1 else "low"
        return {"y": inputs["x"], name: inputs["x"]}
        """,
    )
    with serving(folder) as at:
        low, high = at.infer(x(1))[0], at.infer(x(2))[0]
        picked, wrong = at.infer(x(2, outputs=["high"]), x(1, outputs=["high"]))
    assert (list(low.values()), list(high.values())) == (["y", "low"], ["y", "high"])
    assert picked.values() == {"high": [2]}
    assert wrong.body["code"] == "invalid_input"
    assert "unknown output 'high'; the model gave 'y', 'low'" in wrong.body["message"]


LOAD_ERRORS = [
    ({"head": "import nothing"}, "No module named 'nothing'; install it, or name an interpreter"),
    ({"head": "x ="}, "SyntaxError: invalid syntax (snooze_model.py, line "),
    ({"load": "1 / 0"}, "ZeroDivisionError: division by zero"),
    ({"load": "open(model_dir + '/w.bin')"}, "No such file or directory: 'w.bin'"),
    ({"load": "import sys; sys.exit(3)"}, "called sys.exit(3)"),
    ({"head": "import sys; sys.exit()"}, "called sys.exit("),
    ({"load": "raise ValueError('bad weights')"}, "ValueError: bad weights"),
    ({"load": "raise MemoryError"}, "out of memory"),
    ({"class": "Other"}, "snooze_model.py has no class 'Other'; define it, or name another one"),
    ({"head": "class Half:\n    def load(self, a, b): pass", "class": "Half"},
     "class 'Half' in snooze_model.py has no method predict(self, inputs)"),
    ({"head": "class Half: pass", "class": "Half"}, "has no method load(self, model_dir, device)"),
]  # fmt: skip


@EVERYWHERE
@pytest.mark.parametrize(("how", "message"), LOAD_ERRORS)
def test_what_cannot_be_loaded_says_why(
    folder: Path,
    manifest: dict[str, Any],
    how: dict[str, Any],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    failed = failing(python_model(folder, **how, **manifest))
    code = "out_of_memory" if "memory" in message else "model_failed"
    assert failed.body["code"] == code
    assert message in failed.body["message"]
    assert str(folder) not in failed.body["message"]
    if "class" not in how:
        assert "Traceback" in capfd.readouterr().err  # the daemon logs what a worker prints


@EVERYWHERE
@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 11)"])
@pytest.mark.parametrize("where", ["load", "predict"])
def test_the_worker_ends_as_the_model_does(
    folder: Path, manifest: dict[str, Any], end: str, where: str
) -> None:
    python_model(folder, **{"predict": 'return {"y": 1}', where: end}, head="import os", **manifest)
    with worker() as at:
        if where == "predict":
            assert start(at, folder).kind == Kind.READY
        with pytest.raises((AssertionError, ConnectionResetError)):
            start(at, folder) if where == "load" else at.infer(x(1))
        assert at.ended() == (3 if "exit" in end else -11)


def test_a_child_that_holds_the_line_open_is_noticed_to_have_died(folder: Path) -> None:
    python_model(
        folder,
        "os._exit(5)",
        head="import os, time",
        load="if not os.fork(): time.sleep(10); os._exit(0)",
        **APART,
    )
    with serving(folder) as at:
        with pytest.raises(AssertionError, match="the worker has left"):
            at.infer(x(1))
        assert at.ended() == 5


@EVERYWHERE
def test_threads_that_the_model_leaves_behind_hold_nobody_up(
    folder: Path, manifest: dict[str, Any]
) -> None:
    python_model(
        folder,
        load="threading.Thread(target=time.sleep, args=(60,)).start()",
        head="import threading, time",
        **manifest,
    )
    with serving(folder) as at:
        at.infer(x(1))
        at.queue(Kind.STOP)
        at.flush()
        assert at.ended() == 0


def test_the_other_process_goes_with_the_worker_whatever_it_is_doing(folder: Path) -> None:
    python_model(
        folder,
        "while True: pass",
        load='open(model_dir + "/pid", "w").write(str(os.getpid()))',
        head="import os",
        **APART,
    )
    with serving(folder) as at:
        at.ask(x(1))
        at.flush()
        pid = int((folder / "pid").read_text())
        assert pid != at.process.pid
        at.process.kill()
        at.ended()
        _until_gone(pid)


FORKING: Final = """
if not (folder / "pid").exists():
    pid = os.fork()
    if pid == 0:
        os.setsid() if "SESSION" in os.environ else None
        time.sleep(60)
        os._exit(0)
    (folder / "pid").write_text(str(pid))
while inputs["x"][0] == 7:
    time.sleep(1)
return {"y": inputs["x"]}
"""


@pytest.mark.parametrize("session", [{}, {"SESSION": "own"}], ids=["same session", "session"])
@EVERYWHERE
@pytest.mark.parametrize("how", ["asked to leave", "left alone", "left alone in a run"])
def test_processes_that_the_model_has_started_go_with_the_worker(
    folder: Path,
    manifest: dict[str, Any],
    session: dict[str, str],
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in session.items():
        monkeypatch.setenv(name, value)
    python_model(
        folder,
        FORKING,
        head="import os, pathlib, time; folder = pathlib.Path(__file__).parent",
        **manifest,
    )
    with serving(folder) as at:
        at.infer(x(1))
        pid = int((folder / "pid").read_text())
        if how == "asked to leave":
            at.queue(Kind.STOP)
        elif how == "left alone in a run":
            at.ask(x(7))
        at.flush()
        time.sleep(0.05)
        if how != "asked to leave":
            at.sock.close()
        assert at.ended() == (1 if how == "left alone in a run" else 0)
        assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _until_gone(pid: int) -> None:
    ends_at = time.monotonic() + LONG_S
    while _runs(pid):
        assert time.monotonic() < ends_at, f"process {pid} is still there"
        time.sleep(0.01)


def test_variables_and_threads_are_set_before_the_code_runs(folder: Path) -> None:
    python_model(
        folder,
        'return {"y": [os.environ["A"], os.environ["OMP_NUM_THREADS"], str(len(sys.argv))]}',
        head="import os, sys",
        env={"A": "b"},
    )
    with serving(folder, threads=3) as at:
        assert at.infer(x(1))[0].values() == {"y": ["b", "3", "1"]}


def test_numpy_gets_the_threads_that_the_worker_was_given(folder: Path) -> None:
    python_model(
        folder,
        'return {"y": [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]}',
        head="import threadpoolctl",
    )
    with serving(folder, threads=3) as at:
        assert set(at.infer(x(1))[0].values()["y"]) == {3}


@EVERYWHERE
def test_load_is_told_folder_and_device(folder: Path, manifest: dict[str, Any]) -> None:
    python_model(
        folder, 'return {"y": self.told}', load="self.told = [model_dir, device]", **manifest
    )
    for given, told in (("auto", "cpu"), ("cuda:1", "cuda:1")):
        with serving(folder, device=given) as at:
            assert at.infer(x(1))[0].values() == {"y": [str(folder), told]}


@EVERYWHERE
def test_modules_beside_the_code_are_found_and_nothing_is_written_there(
    folder: Path, manifest: dict[str, Any]
) -> None:
    python_model(folder, 'return {"y": channel.NUMBER}', head="import channel", **manifest)
    (folder / "channel.py").write_text("NUMBER = 7")
    (folder / "child.py").write_text("")  # one of ours has the same name
    before = sorted(folder.iterdir())
    with serving(folder) as at:
        assert at.infer(x(1))[0].values() == {"y": [7]}
    assert sorted(folder.iterdir()) == before


# Interpreters of their own

OLD = Path.home() / ".pyenv/versions/3.8.18/bin/python"


def interpreters() -> Sequence[Any]:
    old = pytest.mark.skipif(not OLD.exists(), reason="there is no Python 3.8 here")
    return [sys.executable, pytest.param(str(OLD), marks=old)]


@pytest.mark.parametrize("python", interpreters())
def test_raw_models_need_nothing_but_an_interpreter(folder: Path, python: str) -> None:
    empty = folder / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", empty], check=True)
    python_model(
        folder,
        """
        x = inputs["x"]
        assert isinstance(x.data, array) and x.data.typecode == "f"
        doubled = array("f", [2 * value for value in x.data])
        return {"y": x._replace(data=doubled), "sum": [[sum(x.data)]] * x.shape[0]}
        """,
        head="""
        import sys
        from array import array
        try:
            import numpy
        except ImportError:
            pass
        else:
            raise RuntimeError("this interpreter should have nothing")
        """,
        tensor_format="raw",
        python="venv/bin/python",
        batching=False,
    )
    with serving(folder) as at:
        small, whole, text, huge = at.infer(
            x(1, 2),
            {"inputs": [{"name": "x", "shape": [1], "data": [3], "datatype": "INT64"}]},
            {"inputs": [{"name": "x", "shape": [1], "data": ["a"]}]},
            {"inputs": [{"name": "x", "shape": [1], "data": [2**24 + 1], "datatype": "INT64"}]},
        )
    assert small.values() == {"y": [2, 4], "sum": [3, 3]}
    assert {output["datatype"] for output in small.body["outputs"]} == {"FP32"}
    assert whole.values() == {"y": [6], "sum": [3]}
    assert text.body["message"] == "input 'x' is BYTES, but the model takes FP32"
    assert "whole numbers that FP32 cannot" in huge.body["message"]


def test_raw_models_may_run_in_the_worker_too(folder: Path) -> None:
    predict = 'return {"y": inputs["x"], "n": [float(n) for n in inputs["x"].data]}'
    with serving(python_model(folder, predict, tensor_format="raw")) as at:
        replies = at.infer(x(1), x(2, 3))
    assert [reply.values() for reply in replies] == [
        {"y": [1], "n": [1]},
        {"y": [2, 3], "n": [2, 3]},
    ]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\nexit 4", "fake ended with status 4 before it ran the model's code"),
        ("#!/nowhere/python", "fake cannot be run: No such file or directory"),
    ],
)
def test_an_interpreter_that_is_none_is_told(folder: Path, script: str, message: str) -> None:
    python_model(folder, python="./fake")
    (folder / "fake").write_text(script)
    (folder / "fake").chmod(0o755)
    assert message in failing(folder).body["message"]
