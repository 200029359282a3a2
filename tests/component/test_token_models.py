"""A worker process with real encoders and requests of different lengths."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

import models
from component import harness
from component.harness import WorkerProcess
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.frames import Kind

TEXT = (
    TensorSpec(
        "input_ids",
        "INT64",
        ("batch", "n"),
        0,
        ragged_axis=1,
        max_length=64,
        bounds=(0, 50),
        group="text",
    ),
    TensorSpec(
        "attention_mask", "INT64", ("batch", "n"), 0, ragged_axis=1, default="ones", group="text"
    ),
)
TOKENS = TensorSpec("tokens", "FP32", ("batch", "n", 8), 0, ragged_axis=1, group="text")
MEAN = TensorSpec("mean", "FP32", ("batch", 8), 0, group="text")
PIXELS = TensorSpec("pixel_values", "FP32", ("images", 3, 4, 4), 0, group="image")
IMAGE = TensorSpec("image_embeds", "FP32", ("images", 8), 0, group="image")
TOWERS = Signature((*TEXT, PIXELS), (TOKENS, MEAN, IMAGE))
POOLING = Signature(TEXT, (TOKENS, MEAN))

Values = npt.NDArray[Any]


@pytest.fixture
def process() -> Iterator[WorkerProcess]:
    with harness.worker() as worker:
        yield worker


def body(**inputs: Values) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": name, "shape": list(a.shape), "data": a.ravel().tolist()}
            for name, a in inputs.items()
        ]
    }


def reference(graph: Path, **feeds: Values) -> dict[str, Values]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def assert_same(reply: harness.Reply, wanted: dict[str, Values]) -> None:
    assert reply.kind == Kind.RESULT, reply.body
    for output in reply.body["outputs"]:
        array = wanted[output["name"]]
        assert output["shape"] == list(array.shape)
        np.testing.assert_allclose(output["data"], array.ravel(), rtol=1e-5, atol=1e-6)


def texts(*sizes: tuple[int, int]) -> list[Values]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 50, size) for size in sizes]


def test_texts_of_different_lengths_share_a_run(process: WorkerProcess, tmp_path: Path) -> None:
    graph = models.pooling_model(tmp_path / "text.onnx")
    process.load(harness.spec(POOLING, graph))
    sent = texts((1, 3), (2, 9), (1, 1), (3, 5))
    replies = process.infer(*(body(input_ids=ids) for ids in sent))
    assert [reply.batch_rows for reply in replies] == [7] * 4
    for reply, ids in zip(replies, sent, strict=True):
        assert_same(reply, reference(graph, input_ids=ids, attention_mask=np.ones_like(ids)))
    assert process.notices == []


def test_a_run_takes_no_more_tokens_than_it_may(process: WorkerProcess, tmp_path: Path) -> None:
    graph = models.pooling_model(tmp_path / "text.onnx")
    process.load(harness.spec(POOLING, graph, max_batch_tokens=40))
    sent = texts((1, 10), (2, 10), (1, 30), (2, 20), (7, 20))
    replies = process.infer(*(body(input_ids=ids) for ids in sent))
    assert [reply.batch_rows for reply in replies] == [3, 3, 1, 2, 2]
    for reply, ids in zip(replies, sent, strict=True):
        assert_same(reply, reference(graph, input_ids=ids, attention_mask=np.ones_like(ids)))


def test_nothing_to_attend_to_is_answered_as_alone_and_spoils_no_batch(
    process: WorkerProcess, tmp_path: Path
) -> None:
    graph = models.encoder_model(tmp_path / "encoder.onnx", layers=1)
    names = ("input_ids", "attention_mask", "token_type_ids")
    defaults: list[Any] = [None, "ones", "zeros"]
    inputs = tuple(
        TensorSpec(name, "INT64", ("b", "s"), 0, ragged_axis=1, default=default)
        for name, default in zip(names, defaults, strict=True)
    )
    state = TensorSpec("last_hidden_state", "FP32", ("b", "s", 32), 0, ragged_axis=1)
    process.load(harness.spec(Signature(inputs, (state,)), graph))
    ordinary, masked, longer = texts((1, 4), (1, 3), (2, 6))
    nothing = np.zeros_like(masked)
    asked = [
        {"input_ids": ordinary, "attention_mask": np.ones_like(ordinary)},
        {"input_ids": masked, "attention_mask": nothing},
        {"input_ids": longer, "attention_mask": np.ones_like(longer)},
    ]
    replies = process.infer(*(body(**inputs) for inputs in asked))
    assert [reply.batch_rows for reply in replies] == [3, 1, 3]
    for reply, feed in zip(replies, asked, strict=True):
        types = np.zeros_like(feed["input_ids"])
        assert_same(reply, reference(graph, token_type_ids=types, **feed))
    (empty,) = process.infer(body(input_ids=np.zeros((2, 0), np.int64)))
    assert_same(empty, {"last_hidden_state": np.zeros((2, 0, 32))})
    assert process.notices == []


@pytest.mark.parametrize(
    ("ids", "code", "words"),
    [
        (np.full((1, 4), 50), "invalid_input", "from 0 to 49, got 50"),
        (np.ones((1, 65), np.int64), "shape_mismatch", "may be 64 long on axis 1, got 65"),
    ],
)
def test_ids_beyond_the_model_are_the_callers_error(
    process: WorkerProcess, tmp_path: Path, ids: Values, code: str, words: str
) -> None:
    process.load(harness.spec(POOLING, models.pooling_model(tmp_path / "text.onnx")))
    (reply,) = process.infer(body(input_ids=ids))
    assert reply.body["code"] == code
    assert words in reply.body["message"]


def test_towers_are_asked_alone_or_together(process: WorkerProcess, tmp_path: Path) -> None:
    graph = models.two_tower_model(tmp_path / "clip.onnx")
    process.load(harness.spec(TOWERS, graph))
    short, long, three = texts((1, 3), (2, 5), (3, 2))
    pixels = np.random.default_rng(1).random((2, 3, 4, 4), np.float32)
    asked = [
        {"input_ids": short},
        {"pixel_values": pixels},
        {"input_ids": long},
        {"input_ids": long, "pixel_values": pixels},
        {"input_ids": three, "pixel_values": pixels},
    ]
    replies = process.infer(*(body(**inputs) for inputs in asked))
    answered = [[output["name"] for output in reply.body["outputs"]] for reply in replies]
    text, image = ["tokens", "mean"], ["image_embeds"]
    assert answered == [text, image, text, text + image, text + image]
    assert [reply.batch_rows for reply in replies] == [3, 2, 3, 2, 3]
    for reply, inputs in zip(replies, asked, strict=True):
        ids = inputs.get("input_ids", np.zeros((0, 1), np.int64))
        images = inputs.get("pixel_values", np.zeros((0, 3, 4, 4), np.float32))
        mask = np.ones_like(ids)
        assert_same(
            reply, reference(graph, input_ids=ids, attention_mask=mask, pixel_values=images)
        )
    assert process.notices == []
