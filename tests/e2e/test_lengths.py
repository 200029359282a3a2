"""Texts of different lengths over HTTP: one batch, and each gets what it would get alone."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import models
from e2e import processes
from e2e.client import Reply, infer_body, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon, path
from e2e.eventually import eventually

IDS = list[list[int]]


@pytest.fixture(autouse=True)
def encoder(models_dir: Path) -> Path:
    return models.encoder_model(models_dir / "encoder.onnx")


def ask(daemon: Daemon, ids: IDS) -> Reply:
    shape = [len(ids), len(ids[0])]
    body = infer_body(tensor("input_ids", shape, ids))
    return daemon.request("POST", path("encoder", "infer"), body)


def ask_together(daemon: Daemon, texts: list[IDS]) -> list[Reply]:
    """Ask so that the worker finds two batches of eight at once; the rest come after them."""
    daemon.control("encoder", "load")
    with ThreadPoolExecutor(len(texts)) as pool:
        with processes.frozen(daemon.worker()):
            sent = [pool.submit(ask, daemon, ids) for ids in texts]
            outside = len(texts) - 16
            eventually(
                lambda: daemon.model("encoder")["queue_depth"] == outside, "the worker has its two"
            )
        return [future.result() for future in sent]


def made_up(texts: int, longest: int) -> list[IDS]:
    rng = random.Random(0)
    lengths = [rng.randint(1, longest) for _ in range(texts)]
    return [[[rng.randrange(1000) for _ in range(length)]] for length in lengths]


def assert_as_alone(encoder: Path, ids: IDS, reply: Reply) -> None:
    session = onnxruntime.InferenceSession(encoder, providers=["CPUExecutionProvider"])
    array = np.array(ids)
    feeds = {"input_ids": array, "attention_mask": np.ones_like(array)}
    (wanted,) = session.run(None, {**feeds, "token_type_ids": np.zeros_like(array)})
    (output,) = reply.json()["outputs"]
    assert output["shape"] == list(wanted.shape)
    np.testing.assert_allclose(output["data"], wanted.ravel(), rtol=1e-3, atol=1e-4)


def test_texts_of_different_lengths_share_batches_and_get_what_they_get_alone(
    serve: Serve, encoder: Path
) -> None:
    daemon = serve("[defaults]\nmax_batch_size = 8\n")
    texts = made_up(20, longest=60)
    replies = ask_together(daemon, texts)
    for ids, reply in zip(texts, replies, strict=True):
        assert_as_alone(encoder, ids, reply)
    sizes = [reply.headers["x-snooze-batch-size"] for reply in replies]
    assert sizes.count("8") >= 16
    assert not [entry for entry in daemon.log() if "unbatchable" in str(entry)]


def test_a_batch_has_no_more_tokens_than_configured(serve: Serve, encoder: Path) -> None:
    daemon = serve("[defaults]\nmax_batch_size = 8\nmax_batch_tokens = 100\n")
    texts = [[[number] * 50] for number in range(18)]
    for ids, reply in zip(texts, ask_together(daemon, texts), strict=True):
        assert_as_alone(encoder, ids, reply)
        assert reply.headers["x-snooze-batch-size"] in ("1", "2")


def test_ids_alone_written_as_floats_are_enough(serve: Serve, encoder: Path) -> None:
    daemon = serve()
    body = infer_body(tensor("input_ids", [1, 4], [101.0, 592.0, 2.0, 102.0]))
    reply = daemon.request("POST", path("encoder", "infer"), body)
    assert_as_alone(encoder, [[101, 592, 2, 102]], reply)


def test_a_token_that_the_model_does_not_have_is_told_the_range(serve: Serve) -> None:
    daemon = serve()
    for token in (1000, -1, 2**40):
        reply = ask(daemon, [[1, token]])
        assert (reply.status, reply.json()["code"]) == (400, "invalid_input")
        assert f"takes values from 0 to 999, got {token}" in reply.json()["error"]
    assert ask(daemon, [[1, 999]]).status == 200
