"""A worker process from START to its end, with a fake engine that misbehaves on command."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from component import fake_worker, harness
from component.fake_engine import SIGNATURE, FakeEngine
from component.harness import WorkerProcess
from snoozeml.core.plan import WorkerSpec
from snoozeml.wire.frames import Kind
from snoozeml.wire.tensors import Tensors

SCRIPT = str(Path(fake_worker.__file__))


def fake(how: str, **changes: Any) -> WorkerSpec:
    return harness.spec(SIGNATURE, how, **changes)


@pytest.fixture
def process() -> Iterator[WorkerProcess]:
    """A worker with a fake engine that waits for START."""
    with harness.worker([SCRIPT]) as worker:
        yield worker


def request(rows: int = 1, columns: int = 2, *, seed: int = 0, **more: Any) -> dict[str, Any]:
    values = random.Random(seed)
    x, state = ([values.random() for _ in range(n)] for n in (rows * columns, 2 * rows))
    tensors = [
        {"name": "x", "shape": [rows, columns], "data": x},
        {"name": "state", "shape": [2, rows], "data": state},
        {"name": "scale", "shape": [], "data": [2]},
    ]
    return {"inputs": tensors, **more}


def alone(body: dict[str, Any]) -> dict[str, list[Any]]:
    inputs: Tensors = {
        t["name"]: np.array(t["data"], np.float32).reshape(t["shape"]) for t in body["inputs"]
    }
    names = body.get("outputs", [spec.name for spec in SIGNATURE.outputs])
    outputs = FakeEngine().infer(inputs, names)
    return {name: array.ravel().tolist() for name, array in zip(names, outputs, strict=True)}


def assert_answers(reply: harness.Reply, body: dict[str, Any]) -> None:
    values, wanted = reply.values(), alone(body)
    assert list(values) == list(wanted)
    for name in wanted:
        np.testing.assert_allclose(values[name], wanted[name], rtol=1e-5)


def test_requests_that_come_together_are_one_batch(process: WorkerProcess) -> None:
    assert process.load(fake("well")).device == "fake"
    bodies = [request(rows, seed=rows) for rows in (1, 2, 3)]
    replies = process.infer(*bodies)
    for reply, body in zip(replies, bodies, strict=True):
        assert_answers(reply, body)
        assert reply.batch_rows == 6
        assert reply.body["model_id"] == "model"
        assert reply.queue_s >= 0
        assert 0 <= reply.run_s <= reply.body["duration_ms"] / 1000 < harness.LONG_S


def test_every_batch_is_reported_once(process: WorkerProcess) -> None:
    process.load(fake("hates negatives", max_batch_size=4))
    bad = request()
    bad["inputs"][0]["data"] = [-1, -1]
    assert sum(reply.batches for reply in process.infer(*[request()] * 8, b"{")) == 2
    assert [reply.batches for reply in process.infer(bad)] == [1]
    assert [reply.batches for reply in process.infer(b"{", request(rows=0))] == [0, 0]


def test_random_crowds_get_what_each_would_get_alone(process: WorkerProcess) -> None:
    process.load(fake("well", max_batch_size=5))
    chance = random.Random(1)
    for _ in range(30):
        bodies = [
            request(chance.randint(0, 8), chance.choice([1, 3]), seed=chance.getrandbits(32))
            | chance.choice([{}, {"outputs": ["label"]}, {"outputs": ["next_state", "y"]}])
            for _ in range(chance.randint(1, 12))
        ]
        for reply, body in zip(process.infer(*bodies), bodies, strict=True):
            if body["inputs"][0]["shape"][0]:
                assert_answers(reply, body)
            else:
                assert set(map(len, reply.values().values())) == {0}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("mixes rows", "'y' of a row depends on the rows beside it"),
        ("loses a row", "'y' has the shape [2, 2] for 3 rows"),
        ("answers one number", "'y' has the shape [] for 3 rows"),
        ("takes one row", "one row, please"),
    ],
)
def test_a_model_that_cannot_be_merged_runs_alone_with_one_notice(
    process: WorkerProcess, how: str, why: str
) -> None:
    process.load(fake(how))
    for _ in range(3):
        replies = process.infer(*(request(seed=seed) for seed in range(3)))
        assert [(reply.kind, reply.batch_rows) for reply in replies] == [(Kind.RESULT, 1)] * 3
    (notice,) = process.notices
    assert notice.body["code"] == "unbatchable"
    assert why in notice.body["message"]


def test_a_request_that_makes_the_model_raise_fails_alone(process: WorkerProcess) -> None:
    process.load(fake("hates negatives"))
    bodies = [request(seed=seed) for seed in range(3)]
    bodies[1]["inputs"][0]["data"] = [-1, 2]
    good, bad, also_good = process.infer(*bodies)
    assert_answers(good, bodies[0])
    assert_answers(also_good, bodies[2])
    assert (bad.kind, bad.body["code"]) == (Kind.ERROR, "internal")
    assert "ValueError: negative" in bad.body["traceback"]
    assert "negative" not in bad.body["message"]
    assert process.notices == []


@pytest.mark.parametrize(
    ("how", "code"),
    [("changes datatype", "inference_failed"), ("has room for 0", "out_of_memory")],
)
def test_failures_of_a_model_have_their_code_and_the_worker_goes_on(
    process: WorkerProcess, how: str, code: str
) -> None:
    process.load(fake(how))
    for _ in range(2):
        (reply,) = process.infer(request(rows=3))
        assert (reply.kind, reply.body["code"]) == (Kind.ERROR, code)


def test_what_there_is_no_memory_for_runs_in_smaller_pieces_with_one_notice(
    process: WorkerProcess,
) -> None:
    process.load(fake("has room for 3"))
    for _ in range(3):
        bodies = [request(rows, seed=rows) for rows in (1, 2, 1, 5, 1)]
        for reply, body in zip(process.infer(*bodies), bodies, strict=True):
            assert_answers(reply, body)
            assert reply.batch_rows <= 3
    (notice,) = process.notices
    assert notice.body["code"] == "out_of_memory"
    assert "at most 2 rows, not 16" in notice.body["message"]


def test_a_model_that_cannot_be_packed_answers_on_with_one_notice(process: WorkerProcess) -> None:
    process.load(fake("cannot be packed", pack_after_runs=1))
    while not process.notices:
        assert_answers(process.infer(request())[0], request())
    for _ in range(10):
        process.infer(request())
    (notice,) = process.notices
    assert notice.body["code"] == "out_of_memory"
    assert "first, slower tier: out of memory: no room for two" in notice.body["message"]


def test_floats_that_are_not_finite_are_null(process: WorkerProcess) -> None:
    process.load(fake("is not a number"))
    for reply in process.infer(request(), request()):
        assert reply.values()["y"][0] is None
    assert process.notices == []


def test_a_bad_request_is_refused_beside_good_ones(process: WorkerProcess) -> None:
    process.load(fake("well"))
    good, bad, also_good = process.infer(request(seed=1), b"{", request(seed=2))
    assert_answers(good, request(seed=1))
    assert_answers(also_good, request(seed=2))
    assert bad.kind == Kind.ERROR
    assert bad.body["code"] == "invalid_input"
    assert bad.body["traceback"] is None


def test_a_request_past_its_deadline_does_not_run(process: WorkerProcess) -> None:
    process.load(fake("sleeps", batching="off"))
    process.ask(request(seed=1))
    late = process.ask(request(seed=2), timeout_s=0.1)
    too_late = process.ask(request(seed=3), timeout_s=-0.1)
    process.ask(request(seed=4))
    started = time.monotonic()
    process.flush()
    replies = process.replies(4)
    assert time.monotonic() - started < 0.55
    for request_id in (late, too_late):
        assert replies[request_id].body["code"] == "deadline_exceeded"


def test_a_cancelled_request_does_not_run(process: WorkerProcess) -> None:
    process.load(fake("sleeps", batching="off"))
    first, cancelled, last = (process.ask(request(seed=seed)) for seed in range(3))
    process.queue(Kind.CANCEL, id=cancelled)
    process.queue(Kind.CANCEL, id=12345)
    process.flush()
    replies = process.replies(3)
    assert replies[cancelled].body["code"] == "cancelled"
    assert {replies[first].kind, replies[last].kind} == {Kind.RESULT}


def test_a_fixed_delay_is_kept_and_a_full_batch_ends_it(process: WorkerProcess) -> None:
    process.load(fake("well", batching="fixed", max_batch_delay_s=0.2, max_batch_size=4))
    started = time.monotonic()
    (reply,) = process.infer(request())
    assert time.monotonic() - started >= 0.2
    assert reply.queue_s >= 0.2
    started = time.monotonic()
    process.infer(*(request() for _ in range(4)))
    assert time.monotonic() - started < 0.2


def test_a_single_client_pays_no_adaptive_delay(process: WorkerProcess) -> None:
    process.load(fake("well", max_batch_delay_s=5.0))
    started = time.monotonic()
    for _ in range(20):
        process.infer(request())
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("plan_batching", ["alone", "row_by_row"])
def test_models_that_take_no_batches_get_none(process: WorkerProcess, plan_batching: Any) -> None:
    process.load(fake("well", plan_batching=plan_batching, max_batch_size=4))
    bodies = [request(rows, seed=rows) for rows in (1, 1, 6)]
    for reply, body in zip(process.infer(*bodies), bodies, strict=True):
        assert_answers(reply, body)
        rows = len(body["inputs"][1]["data"]) // 2
        assert reply.batch_rows == (1 if plan_batching == "row_by_row" else rows)


@pytest.mark.parametrize(
    ("how", "code"), [("cannot load", "model_failed"), ("explodes", "internal")]
)
def test_a_model_that_cannot_be_loaded_is_reported(
    process: WorkerProcess, how: str, code: str
) -> None:
    reply = process.start(fake(how))
    assert (reply.kind, reply.body["code"]) == (Kind.LOAD_FAILED, code)
    assert "Traceback" in reply.body["traceback"]
    assert process.ended() == 0


def test_stop_lets_the_worker_finish_what_it_has(process: WorkerProcess) -> None:
    process.load(fake("sleeps", batching="fixed", max_batch_delay_s=10.0, max_batch_size=2))
    started = time.monotonic()
    ids = {process.ask(request(seed=seed)) for seed in range(3)}
    process.queue(Kind.STOP)
    process.flush()
    assert process.replies(3).keys() == ids
    assert process.ended() == 0
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("loaded", [True, False])
def test_a_worker_does_not_outlive_the_daemon(process: WorkerProcess, loaded: bool) -> None:
    if loaded:
        process.load(fake("well"))
    process.sock.close()
    assert process.ended() == 0


def test_a_daemon_that_vanishes_during_a_run_ends_the_worker(process: WorkerProcess) -> None:
    process.load(fake("sleeps"))
    process.ask(request())
    process.flush()
    time.sleep(0.05)
    process.sock.close()
    assert process.ended() == 0


def test_a_hung_worker_does_not_outlive_the_daemon_for_long(process: WorkerProcess) -> None:
    process.load(fake("hangs"))
    process.ask(request())
    process.flush()
    time.sleep(0.05)
    process.sock.close()
    assert process.ended() == 1


def test_sigterm_ends_an_idle_worker(process: WorkerProcess) -> None:
    process.load(fake("well"))
    process.process.send_signal(signal.SIGTERM)
    assert process.ended() == 0


def test_sigterm_lets_the_batch_in_hand_finish(process: WorkerProcess) -> None:
    process.load(fake("sleeps", batching="off"))
    first, _ = process.ask(request(seed=1)), process.ask(request(seed=2))
    process.flush()
    time.sleep(0.1)
    process.process.send_signal(signal.SIGTERM)
    assert process.reply().id == first
    assert process.ended() == 0


def test_sigint_belongs_to_the_daemon(process: WorkerProcess) -> None:
    process.load(fake("well"))
    process.process.send_signal(signal.SIGINT)
    (reply,) = process.infer(request())
    assert_answers(reply, request())


def test_large_requests_and_answers_pass_a_small_socket(process: WorkerProcess) -> None:
    process.load(fake("well"))
    bodies = [request(rows=16, columns=1000, seed=seed) for seed in range(10)]
    ids = [process.ask(body) for body in bodies]
    sender = Thread(target=process.flush)
    sender.start()
    time.sleep(0.1)  # both directions are full by now
    replies = process.replies(10)
    sender.join()
    for request_id, body in zip(ids, bodies, strict=True):
        assert_answers(replies[request_id], body)
