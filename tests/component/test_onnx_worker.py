"""A worker process with ONNX Runtime and real models."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
import pytest
from onnx import helper

import models
from component import harness
from component.harness import WorkerProcess
from e2e.eventually import eventually
from e2e.processes import mapped_parts
from snoozeml.core.plan import WorkerSpec
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.prepare.session import GRAPH_FILE, WEIGHTS_FILE, optimise
from snoozeml.wire.frames import Kind
from snoozeml.worker.engines.onnx import OnnxEngine

IRIS = Signature(
    (TensorSpec("X", "FP32", (None, 4), 0),),
    (TensorSpec("label", "INT64", (None,), 0), TensorSpec("probabilities", "FP32", (None, 3), 0)),
)
RECURRENT = Signature(
    (TensorSpec("x", "FP32", ("batch", 8), 0), TensorSpec("state", "FP32", (2, "batch", 8), 1)),
    (
        TensorSpec("y", "FP32", ("batch", 8), 0),
        TensorSpec("next_state", "FP32", (2, "batch", 8), 1),
    ),
)
IMAGE = Signature(
    (TensorSpec("image", "FP32", (1, 3, 4, 4), 0),), (TensorSpec("scores", "FP32", (1, 5), 0),)
)
TEXT = Signature(
    (TensorSpec("text", "BYTES", ("batch",), 0),), (TensorSpec("shout", "BYTES", ("batch",), 0),)
)
SCALAR = Signature((TensorSpec("x", "FP32", ()),), (TensorSpec("y", "FP32", ()),))
ECHO = Signature(
    (TensorSpec("x", "FP32", ("batch", "features"), 0),),
    (TensorSpec("y", "FP32", ("batch", "features"), 0),),
)


@pytest.fixture
def process() -> Iterator[WorkerProcess]:
    with harness.worker() as worker:
        yield worker


def body(**inputs: Any) -> dict[str, Any]:
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    return {
        "inputs": [
            {"name": name, "shape": list(a.shape), "data": a.ravel().tolist()}
            for name, a in arrays.items()
        ]
    }


def reference(graph: Path, **feeds: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def assert_same(reply: harness.Reply, wanted: dict[str, Any]) -> None:
    for name, values in reply.values().items():
        np.testing.assert_allclose(values, wanted[name].ravel(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("prepared", [True, False])
def test_a_classifier_answers_a_batch_like_each_request_alone(
    process: WorkerProcess, tmp_path: Path, prepared: bool
) -> None:
    graph = models.linear_model(tmp_path / "iris.onnx")
    ready = process.load(harness.spec(IRIS, graph, prepared=prepared))
    assert ready.device == "cpu"
    assert 0 < ready.load_s < harness.LONG_S
    rng = np.random.default_rng(0)
    xs = [rng.random((rows, 4), np.float32) for rows in (1, 3, 20, 2)]
    for reply, x in zip(process.infer(*(body(X=x) for x in xs)), xs, strict=True):
        assert_same(reply, reference(graph, X=x))


def test_a_state_whose_batch_axis_is_not_the_first_is_merged(
    process: WorkerProcess, tmp_path: Path
) -> None:
    graph = models.recurrent_model(tmp_path / "rnn.onnx")
    process.load(harness.spec(RECURRENT, graph))
    rng = np.random.default_rng(0)
    feeds = [
        {"x": rng.random((n, 8), np.float32), "state": rng.random((2, n, 8), np.float32)}
        for n in (1, 2, 3)
    ]
    replies = process.infer(*(body(**feed) for feed in feeds))
    for reply, feed in zip(replies, feeds, strict=True):
        assert reply.batch_rows == 6
        assert_same(reply, reference(graph, **feed))
    assert process.notices == []


def test_a_batch_dimension_of_one_is_fed_row_by_row(process: WorkerProcess, tmp_path: Path) -> None:
    graph = models.fixed_batch_model(tmp_path / "image.onnx")
    process.load(harness.spec(IMAGE, graph, plan_batching="row_by_row"))
    image = np.random.default_rng(0).random((3, 3, 4, 4), np.float32)
    (reply,) = process.infer(body(image=image))
    rows = [reference(graph, image=row[np.newaxis])["scores"] for row in image]
    assert reply.batch_rows == 1
    assert_same(reply, {"scores": np.concatenate(rows)})


def test_text_goes_in_and_out(process: WorkerProcess, tmp_path: Path) -> None:
    process.load(harness.spec(TEXT, models.string_model(tmp_path / "text.onnx")))
    one, two = process.infer(body(text=["grüß", ""]), body(text=["嗨"]))
    assert one.values() == {"shout": ["grüß!", "!"]}
    assert two.values() == {"shout": ["嗨!"]}


def test_scalars_run_alone(process: WorkerProcess, tmp_path: Path) -> None:
    graph = models.scalar_model(tmp_path / "number.onnx")
    process.load(harness.spec(SCALAR, graph, plan_batching="alone"))
    replies = process.infer(body(x=21), body(x=4))
    assert [reply.body["outputs"][0] for reply in replies] == [
        {"name": "y", "shape": [], "datatype": "FP32", "data": [42.0]},
        {"name": "y", "shape": [], "datatype": "FP32", "data": [8.0]},
    ]


def test_no_rows_are_answered_without_a_run(process: WorkerProcess, tmp_path: Path) -> None:
    process.load(harness.spec(ECHO, models.identity_model(tmp_path / "echo.onnx")))
    (reply,) = process.infer({"inputs": [{"name": "x", "shape": [0, 7], "data": []}]})
    assert reply.body["outputs"] == [{"name": "y", "shape": [0, 7], "datatype": "FP32", "data": []}]


def test_a_token_that_a_model_does_not_have_is_the_callers_error_and_shows_no_path(
    process: WorkerProcess, tmp_path: Path
) -> None:
    graph = models.encoder_model(tmp_path / "encoder.onnx", layers=1)
    names = ("input_ids", "attention_mask", "token_type_ids")
    signature = Signature(
        tuple(TensorSpec(name, "INT64", ("b", "s"), 0) for name in names),
        (TensorSpec("last_hidden_state", "FP32", ("b", "s", 32), 0),),
    )
    process.load(harness.spec(signature, graph))
    ids = np.full((1, 4), 10**6)
    (reply,) = process.infer(body(**dict.fromkeys(names, ids)))
    assert (reply.kind, reply.body["code"]) == (Kind.ERROR, "invalid_input")
    assert reply.body["message"].startswith("ONNX Runtime: ")
    assert "must be within the inclusive range" in reply.body["message"]
    assert "/" not in reply.body["message"]


@pytest.fixture
def encoder(tmp_path: Path) -> WorkerSpec:
    """A plan of an encoder, and a worker that packs it as soon as it may."""
    model = models.encoder_model(tmp_path / "encoder.onnx")
    optimise(model, tmp_path, model.stat().st_size)
    names = ("input_ids", "attention_mask", "token_type_ids")
    signature = Signature(
        tuple(TensorSpec(name, "INT64", ("batch", "sequence"), 0) for name in names),
        (TensorSpec("last_hidden_state", "FP32", ("batch", "sequence", 32), 0),),
    )
    return harness.spec(
        signature,
        tmp_path / GRAPH_FILE,
        prepared=True,
        packed=True,
        threads=2,
        pack_after_runs=3,
    )


def tokens(seed: int) -> dict[str, Any]:
    ids = np.random.default_rng(seed).integers(0, 1000, (2, 5))
    return {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}


def test_answers_stay_the_same_when_a_model_is_packed_under_way(
    process: WorkerProcess, encoder: WorkerSpec
) -> None:
    process.load(encoder)
    wanted = reference(Path(encoder.plan.graph), **tokens(0))
    started = time.monotonic()
    while time.monotonic() - started < 0.5:
        assert_same(process.infer(body(**tokens(0)))[0], wanted)
    assert process.notices == []


def test_a_plan_that_has_gone_cannot_be_packed_and_answers_on(
    process: WorkerProcess, encoder: WorkerSpec
) -> None:
    wanted = reference(Path(encoder.plan.graph), **tokens(0))
    process.load(encoder)
    Path(encoder.plan.graph).unlink()
    while not process.notices:
        assert_same(process.infer(body(**tokens(0)))[0], wanted)
    assert process.notices[0].body["code"] == "model_failed"
    assert_same(process.infer(body(**tokens(0)))[0], wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="niceness is not per thread there")
def test_no_thread_that_serves_has_a_low_priority(encoder: WorkerSpec) -> None:
    def priorities() -> list[int]:
        found = []
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended just now
                found.append(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
        return found

    before = priorities()
    engine = OnnxEngine(encoder)
    eventually(lambda: priorities() == [*before, before[0]], "the thread that loaded has gone")
    engine.pack()
    eventually(lambda: priorities() == [*before, before[0]], "the first session has gone")
    engine.infer(tokens(0), ["last_hidden_state"])


def test_packed_weights_are_mapped_and_take_the_place_of_the_others(encoder: WorkerSpec) -> None:
    engine = OnnxEngine(encoder)
    as_they_are = mapped_parts(os.getpid(), WEIGHTS_FILE)
    engine.pack()
    packed = mapped_parts(os.getpid(), WEIGHTS_FILE)
    assert packed
    assert packed < as_they_are, "the others are not mapped any more"


def test_a_run_that_meets_the_swap_does_not_give_the_old_session_back(encoder: WorkerSpec) -> None:
    engine = OnnxEngine(encoder)
    threads: dict[str, int] = {}
    go_on = threading.Event()

    class OldSession:
        def run(self, *_: Any) -> list[Any]:
            threads["ran"] = threading.get_native_id()
            assert go_on.wait(harness.LONG_S)
            return []

        def __del__(self) -> None:
            threads["gave back"] = threading.get_native_id()

    engine._run = OldSession().run
    with ThreadPoolExecutor(2) as pool:
        met = pool.submit(engine.infer, tokens(0), ["last_hidden_state"])
        eventually(lambda: "ran" in threads, "the run is under way")
        packed = pool.submit(engine.pack)
        eventually(lambda: not isinstance(engine._run.__self__, OldSession), "the swap")
        go_on.set()
        assert met.result() == []
        packed.result()
    assert threads["gave back"] != threads["ran"]


def test_only_a_plan_with_packed_weights_can_be_packed(encoder: WorkerSpec) -> None:
    assert OnnxEngine(encoder).is_packable
    plan = msgspec.structs.replace(encoder.plan, packed_graph=None)
    assert not OnnxEngine(msgspec.structs.replace(encoder, plan=plan)).is_packable


def test_a_file_that_is_no_model_fails_to_load(process: WorkerProcess, tmp_path: Path) -> None:
    graph = tmp_path / "broken.onnx"
    graph.write_bytes(b"not a model")
    reply = process.start(harness.spec(ECHO, graph))
    assert (reply.kind, reply.body["code"]) == (Kind.LOAD_FAILED, "model_failed")
    assert "broken.onnx" in reply.body["message"]
    assert str(tmp_path) not in reply.body["message"]


def test_a_model_beyond_all_memory_is_out_of_memory(process: WorkerProcess, tmp_path: Path) -> None:
    node = helper.make_node("Expand", ["x", "size"], ["y"])
    graph = models.save(
        tmp_path / "huge.onnx",
        [node],
        [models.value("x", ["batch", 1])],
        [models.value("y", ["batch", "n"])],
        {"size": np.array([1, 2**50], np.int64)},
    )
    signature = Signature(
        (TensorSpec("x", "FP32", ("batch", 1), 0),), (TensorSpec("y", "FP32", ("batch", "n"), 0),)
    )
    process.load(harness.spec(signature, graph))
    (reply,) = process.infer(body(x=[[1]]))
    assert (reply.kind, reply.body["code"]) == (Kind.ERROR, "out_of_memory")
    assert "out of memory" in reply.body["message"]


@pytest.mark.parametrize(
    ("device", "install"),
    [("cuda:1", "onnxruntime-gpu"), ("tensorrt", "TensorRT"), ("coreml", "macOS")],
)
@pytest.mark.skipif(sys.platform == "darwin", reason="CoreML is there")
def test_a_device_that_is_not_there_says_what_to_install(
    process: WorkerProcess, tmp_path: Path, device: str, install: str
) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("CUDA is there")
    graph = models.identity_model(tmp_path / "echo.onnx")
    reply = process.start(harness.spec(ECHO, graph, device=device))
    assert (reply.kind, reply.body["code"]) == (Kind.LOAD_FAILED, "model_failed")
    assert repr(device) in reply.body["message"]
    assert install in reply.body["message"]


def test_auto_is_the_cpu_where_nothing_else_is(process: WorkerProcess, tmp_path: Path) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("CUDA is there")
    graph = models.identity_model(tmp_path / "echo.onnx")
    assert process.load(harness.spec(ECHO, graph, device="auto")).device == "cpu"


def test_a_datatype_that_cannot_be_exchanged_is_refused(
    process: WorkerProcess, tmp_path: Path
) -> None:
    graph = models.identity_model(tmp_path / "echo.onnx")
    signature = Signature((TensorSpec("x", "BF16", ("batch",), 0),), ECHO.outputs)
    reply = process.start(harness.spec(signature, graph))
    assert (reply.kind, reply.body["code"]) == (Kind.LOAD_FAILED, "model_failed")
    assert "BF16" in reply.body["message"]
