"""The daemon's plan store with real prepare processes."""

import asyncio
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from msgspec.structs import replace
from onnx import helper

import models
from golden.safetensors.compare import HERE as CHECKPOINTS
from golden.trees.cases import golden_cases
from snoozeml.core.plan import PLAN_FILE, Origin, Plan
from snoozeml.errors import ModelFailed
from snoozeml.lifecycle import plans
from snoozeml.lifecycle.plans import PlanStore, toolchain

LIMIT_BYTES = 1 << 30


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.encoder_model(tmp_path / "model.onnx", layers=1)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[Process]:
    """The prepare processes that were started."""
    started: asyncio.Queue[Process] = asyncio.Queue()
    start: Callable[..., Any] = asyncio.create_subprocess_exec

    async def recording(*args: Any, **kwargs: Any) -> Process:
        process: Process = await start(*args, **kwargs)
        started.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recording)
    return started


def store(cache_dir: Path) -> PlanStore:
    return PlanStore(cache_dir, LIMIT_BYTES)


def ensure(cache_dir: Path, model: Path) -> Plan:
    return asyncio.run(store(cache_dir).ensure(Origin(model, "onnx")))


def plan_folder(plan: Plan) -> Path:
    return Path(plan.graph).parent


def run(graph: Path | str, level: Any, feed: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    answer: list[Any] = session.run(None, feed)
    return answer


def test_a_prepared_plan_answers_like_the_model(cache_dir: Path, model: Path) -> None:
    plan = ensure(cache_dir, model)
    assert plan.prepared
    assert plan.batching == "merge"
    ids = np.arange(12).reshape(2, 6)
    feed = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    levels = ort.GraphOptimizationLevel
    got = run(plan.graph, levels.ORT_DISABLE_ALL, feed)
    wanted = run(model, levels.ORT_ENABLE_ALL, feed)
    np.testing.assert_allclose(got[0], wanted[0], atol=1e-5)


def test_a_plan_holds_large_matrices_packed_as_well(cache_dir: Path, tmp_path: Path) -> None:
    """Loading maps them once, the way they are; that is what counts as the model's size."""
    path = models.external_data_model(tmp_path / "model.onnx", features=512)
    plan = ensure(cache_dir, path)
    matrix_bytes = (tmp_path / "weights.bin").stat().st_size
    assert plan.packed_graph == plan.graph
    assert plan.packing_bytes == matrix_bytes
    assert (plan_folder(plan) / "weights").stat().st_size >= 2 * matrix_bytes
    assert matrix_bytes < plan.weights_bytes < 1.1 * matrix_bytes


def test_a_plan_of_small_matrices_is_not_worth_packing(cache_dir: Path, model: Path) -> None:
    assert ensure(cache_dir, model).packed_graph is None


def test_a_plan_needs_none_of_the_model_files(cache_dir: Path, tmp_path: Path) -> None:
    path = models.external_data_model(tmp_path / "model.onnx")
    plan = ensure(cache_dir, path)
    assert plan.prepared
    path.unlink()
    (tmp_path / "weights.bin").unlink()
    feed = {"x": np.ones((1, 64), dtype=np.float32)}
    assert run(plan.graph, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, feed)[0].shape == (1, 64)


def test_a_plan_is_known_without_a_process(
    cache_dir: Path, model: Path, processes: asyncio.Queue[Process]
) -> None:
    assert store(cache_dir).known(Origin(model, "onnx")) is None
    plan = ensure(cache_dir, model)
    assert store(cache_dir).known(Origin(model, "onnx")) == plan
    assert ensure(cache_dir, model) == plan
    assert processes.qsize() == 1


def test_using_a_plan_renews_its_time_of_use(cache_dir: Path, model: Path) -> None:
    described = plan_folder(ensure(cache_dir, model)) / PLAN_FILE
    os.utime(described, (0, 0))
    store(cache_dir).known(Origin(model, "onnx"))
    assert described.stat().st_mtime == 0
    ensure(cache_dir, model)
    assert described.stat().st_mtime > 0


def test_a_changed_model_is_prepared_again(cache_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    here = store(cache_dir)
    before = asyncio.run(here.ensure(Origin(models.linear_model(path), "onnx")))
    models.linear_model(path, seed=1)
    assert here.known(Origin(path, "onnx")) is None
    after = asyncio.run(here.ensure(Origin(path, "onnx")))
    assert after.graph != before.graph
    assert here.known(Origin(path, "onnx")) == after


def test_changed_external_data_are_noticed(cache_dir: Path, tmp_path: Path) -> None:
    path = models.external_data_model(tmp_path / "model.onnx")
    before = ensure(cache_dir, path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(weights.stat().st_size))
    assert store(cache_dir).known(Origin(path, "onnx")) is None
    assert ensure(cache_dir, path).graph != before.graph


def test_a_copy_of_a_model_shares_its_plan(cache_dir: Path, model: Path) -> None:
    copy = model.with_name("copy.onnx")
    shutil.copy(model, copy)
    assert ensure(cache_dir, model).graph == ensure(cache_dir, copy).graph


def test_another_toolchain_gets_another_plan(
    cache_dir: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ensure(cache_dir, model)
    monkeypatch.setattr(plans, "toolchain", lambda: "a new release")
    assert store(cache_dir).known(Origin(model, "onnx")) is None
    assert ensure(cache_dir, model).graph != before.graph


def vanish(folder: Path) -> None:
    shutil.rmtree(folder)


def truncate_weights(folder: Path) -> None:
    os.truncate(folder / "weights", 100)


def garble_description(folder: Path) -> None:
    (folder / PLAN_FILE).write_bytes(b"\xff{")
    (folder / "plan.onnx").touch()


def garble_index(folder: Path) -> None:
    for entry in (folder.parent.parent / "index").iterdir():
        entry.write_bytes(b'{"plan": "\xff"}')


@pytest.mark.parametrize("damage", [vanish, truncate_weights, garble_description, garble_index])
def test_a_damaged_cache_is_rebuilt(
    cache_dir: Path, model: Path, damage: Callable[[Path], None]
) -> None:
    before = ensure(cache_dir, model)
    whole = Path(before.graph).read_bytes()
    damage(plan_folder(before))
    assert store(cache_dir).known(Origin(model, "onnx")) is None
    # How long a row took is measured anew; all else is as it was.
    assert replace(ensure(cache_dir, model), row_s=before.row_s) == before
    assert Path(before.graph).read_bytes() == whole
    assert (plan_folder(before) / "weights").stat().st_size > 100


def test_daemons_that_prepare_at_once_all_succeed(cache_dir: Path, model: Path) -> None:
    async def at_once() -> list[Plan]:
        return await asyncio.gather(
            *(store(cache_dir).ensure(Origin(model, "onnx")) for _ in range(3))
        )

    prepared = asyncio.run(at_once())
    assert prepared[0].prepared
    assert prepared.count(prepared[0]) == 3
    assert [path.name for path in (cache_dir / "plans").iterdir()] == [
        plan_folder(prepared[0]).name
    ]
    assert store(cache_dir).known(Origin(model, "onnx")) == prepared[0]


@contextmanager
def nearly_full_disk(room_bytes: int) -> Iterator[None]:
    """No file can grow beyond some bytes, for this process and those it starts.

    Only for as long as it must be: pytest's own output may be going to a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room_bytes", [50_000, 4000, 10])
def test_on_a_full_disk_the_model_is_loaded_plainly_and_the_log_says_why(
    cache_dir: Path, model: Path, room_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    with nearly_full_disk(room_bytes):
        plan = ensure(cache_dir, model)
    assert not plan.prepared
    assert plan.unprepared_because
    assert f"loaded plainly, without a plan: {plan.unprepared_because}" in caplog.messages
    assert plan.graph == str(model)
    assert plan.signature.outputs[0].name == "last_hidden_state"
    assert list((cache_dir / "plans").iterdir()) == []
    assert not list((cache_dir / "index").glob(".*"))


@pytest.fixture
def others(tmp_path: Path) -> dict[str, Origin]:
    """Models that cannot be loaded without a plan that lies in the cache, by format."""
    tree = tmp_path / "tree.ubj"
    tree.write_bytes(golden_cases()["xgboost-3.2.0/sklearn-3"].model)
    checkpoint = Origin(CHECKPOINTS / "bert", "safetensors")
    return {"safetensors": checkpoint, "xgboost": Origin(tree, "xgboost")}


@pytest.mark.parametrize(
    ("format_", "room_bytes"),
    [("safetensors", 30_000), ("safetensors", 10_000), ("safetensors", 10), ("xgboost", 10)],
)
def test_on_a_full_disk_other_formats_name_the_cache(
    cache_dir: Path, others: dict[str, Origin], format_: str, room_bytes: int
) -> None:
    with (
        nearly_full_disk(room_bytes),
        pytest.raises(ModelFailed, match="the cache directory") as failure,
    ):
        asyncio.run(store(cache_dir).ensure(others[format_]))
    assert str(cache_dir.parent) not in failure.value.message
    assert list((cache_dir / "plans").iterdir()) == []


@pytest.mark.parametrize("format_", ["safetensors", "xgboost"])
def test_an_unwritable_cache_is_named_by_other_formats(
    tmp_path: Path, others: dict[str, Origin], format_: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelFailed, match="cache directory cannot be written: Not a d") as failure:
        asyncio.run(store(tmp_path / "file").ensure(others[format_]))
    assert str(tmp_path) not in failure.value.message


def test_an_unwritable_cache_is_no_obstacle(
    tmp_path: Path, model: Path, processes: asyncio.Queue[Process]
) -> None:
    (tmp_path / "file").touch()
    here = store(tmp_path / "file")
    plan = asyncio.run(here.ensure(Origin(model, "onnx")))
    assert not plan.prepared
    assert "Not a directory" in (plan.unprepared_because or "")
    assert here.known(Origin(model, "onnx")) == plan
    assert asyncio.run(here.ensure(Origin(model, "onnx"))) == plan
    assert processes.qsize() == 1


def test_an_unprepared_plan_is_tried_again_after_a_while(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    here = store(tmp_path / "file")
    asyncio.run(here.ensure(Origin(model, "onnx")))
    monkeypatch.setattr(plans, "_UNPREPARED_LIFE_S", 0.0)
    assert here.known(Origin(model, "onnx")) is None


def not_a_model(path: Path) -> Path:
    path.write_text("hello")
    return path


def unknown_operator(path: Path) -> Path:
    node = helper.make_node("NoSuchOperator", ["x"], ["y"])
    return models.save(path, [node], [models.value("x", [1])], [models.value("y", [1])])


def reaches_out(path: Path) -> Path:
    os.mkfifo(path.parent / "pipe")  # opening it would hang
    (path.parent / "inner").mkdir()
    return models.external_data_model(path.parent / "inner" / path.name, "../pipe")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda path: path, "model file not found: model.onnx"),
        (not_a_model, "model.onnx is not an ONNX model"),
        (unknown_operator, "NoSuchOperator"),
        (models.sequence_output_model, "zipmap"),
        (reaches_out, "'../pipe'"),
    ],
)
def test_a_model_that_cannot_be_served_says_why(
    cache_dir: Path, tmp_path: Path, build: Callable[[Path], Path], message: str
) -> None:
    path = build(tmp_path / "model.onnx")
    with pytest.raises(ModelFailed) as failure:
        ensure(cache_dir, path)
    assert message in failure.value.message
    assert str(tmp_path) not in failure.value.message
    assert not any(cache_dir.glob("plans/*"))
    assert store(cache_dir).known(Origin(path, "onnx")) is None


def test_cancelling_kills_the_process_and_reaps_it(
    cache_dir: Path, model: Path, processes: asyncio.Queue[Process]
) -> None:
    async def cancel_early() -> Process:
        preparing = asyncio.create_task(store(cache_dir).ensure(Origin(model, "onnx")))
        process = await processes.get()
        preparing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await preparing
        return process

    process = asyncio.run(cancel_early())
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert ensure(cache_dir, model).prepared
    assert len(list((cache_dir / "plans").iterdir())) == 1


def test_a_process_that_dies_is_an_error_that_says_how(
    cache_dir: Path,
    model: Path,
    processes: asyncio.Queue[Process],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def kill_early() -> None:
        preparing = asyncio.create_task(store(cache_dir).ensure(Origin(model, "onnx")))
        os.kill((await processes.get()).pid, signal.SIGSEGV)
        with pytest.raises(ModelFailed, match="ended by SIGSEGV"):
            await preparing

    asyncio.run(kill_early())
    assert "SIGSEGV" in caplog.text


def test_noise_ends_up_in_the_log_and_never_in_the_answer(
    cache_dir: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    noisy = tmp_path / "site"
    noisy.mkdir()
    (noisy / "sitecustomize.py").write_text(
        "import atexit, os\n"
        "atexit.register(lambda: (print('python noise', flush=True), os.write(1, b'fd noise')))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(noisy), prepend=os.pathsep)
    with caplog.at_level(logging.INFO, "snoozeml.prepare"):
        assert asyncio.run(store(cache_dir).ensure(Origin(model, "onnx"), "mine")).prepared
    assert "python noise" in caplog.text
    assert "fd noise" in caplog.text
    lines = {(record.levelno, record.__dict__["fields"]["model"]) for record in caplog.records}
    assert lines == {(logging.WARNING, "mine")}


def test_no_module_is_loaded_from_the_working_folder(
    cache_dir: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model.parent / "onnx.py").write_text("raise SystemExit('not mine')")
    monkeypatch.chdir(model.parent)
    assert ensure(cache_dir, model).prepared


def test_the_plan_store_loads_no_engine() -> None:
    script = (
        "import sys, pathlib\n"
        "from snoozeml.core.plan import Origin\n"
        "from snoozeml.lifecycle.plans import PlanStore\n"
        "PlanStore(pathlib.Path('cache'), 0).known(Origin(pathlib.Path('model.onnx'), 'onnx'))\n"
        "print({'numpy', 'onnx', 'onnxruntime', 'google'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_the_toolchain_names_the_engine_version() -> None:
    assert ort.__version__ in toolchain()
    assert toolchain() == toolchain()
