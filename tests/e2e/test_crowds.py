"""Many at once: a sleeping model is loaded once, a dead worker is replaced."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.conftest import Serve
from e2e.crowd import INFER, Outcomes, answer, ask_once, ask_until, question
from e2e.eventually import eventually

CROWD = 2000


@pytest.fixture(autouse=True)
def rnn(models_dir: Path) -> None:
    models.recurrent_model(models_dir / "rnn.onnx", features=2)


def test_a_crowd_at_a_sleeping_model_loads_it_once_and_everyone_gets_his_own_answer(
    serve: Serve,
) -> None:
    daemon = serve(f"[defaults]\nmax_queue = {CROWD}\n")
    outcomes = asyncio.run(ask_once(daemon, range(1, CROWD + 1)))
    assert outcomes == Outcomes(answered=CROWD)
    model = daemon.model("rnn")
    assert (model["loads"], model["queue_depth"]) == (1, 0)
    assert 1 <= model["replicas"] <= 4, "a crowd may bring help, but wakes the model once"
    metrics = daemon.metrics()
    assert metrics['snoozeml_requests_total{status="success"}'] == CROWD
    assert metrics["snoozeml_batches_dispatched_total"] < CROWD / 2, "hardly anything was merged"


@pytest.mark.parametrize(("batching", "batch_size"), [("adaptive", "4"), ("off", "1")])
def test_requests_that_wait_together_run_together(
    serve: Serve, batching: str, batch_size: str
) -> None:
    """The worker is given two batches ahead; the other four of twelve stay in the daemon."""
    daemon = serve(f'[defaults]\nmax_batch_size = 4\nbatching = "{batching}"\n')
    daemon.control("rnn", "load")
    with ThreadPoolExecutor(12) as pool:
        with processes.frozen(daemon.worker()):
            sent = [pool.submit(daemon.request, "POST", INFER, question(n)) for n in range(12)]
            eventually(lambda: daemon.model("rnn")["queue_depth"] == 4, "the worker has its eight")
        replies = [future.result() for future in sent]
    assert [reply.outputs()["y"] for reply in replies] == [answer(n) for n in range(12)]
    sizes = [reply.headers["x-snooze-batch-size"] for reply in replies]
    assert sizes.count(batch_size) >= 8


def test_killing_the_worker_under_load_costs_no_more_than_what_it_held(serve: Serve) -> None:
    daemon = serve()
    daemon.control("rnn", "load")
    outcomes = Outcomes()
    kills = 3

    async def kill_again_and_again() -> None:
        stop = asyncio.Event()
        load = asyncio.create_task(ask_until(daemon, 32, stop.is_set, outcomes))
        for _ in range(kills):
            await outcomes.more_answers(200)
            (worker,) = await asyncio.to_thread(
                eventually, lambda: daemon.workers(), "a worker serves"
            )
            os.kill(worker, signal.SIGKILL)
        await outcomes.more_answers(200)
        stop.set()
        await load

    asyncio.run(asyncio.wait_for(kill_again_and_again(), 40))

    assert outcomes.wrong == []
    assert outcomes.lost == [], "the daemon itself broke connections off"
    assert set(outcomes.refusals) <= {(503, "worker_crashed")}
    assert daemon.running
    reply = daemon.request("POST", "/v1/models/rnn/infer", question(1))
    assert reply.status == 200
    assert daemon.model("rnn")["loads"] == kills + 1


def test_a_worker_that_dies_idle_is_noticed_at_once(serve: Serve) -> None:
    daemon = serve()
    daemon.control("rnn", "load")
    worker = daemon.worker()
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: daemon.model("rnn")["state"] == "idle", "the death is noticed")
    assert not processes.alive(worker)
    assert daemon.request("POST", "/v1/models/rnn/infer", question(1)).status == 200


def test_a_spare_that_dies_takes_no_model_with_it_and_is_replaced(
    serve: Serve, models_dir: Path
) -> None:
    models.recurrent_model(models_dir / "other.onnx", features=2)
    daemon = serve()
    daemon.control("rnn", "load")
    spare, worker = daemon.spare(), daemon.worker()
    os.kill(spare, signal.SIGKILL)
    eventually(lambda: not processes.alive(spare), "the spare is gone")
    assert daemon.request("POST", "/v1/models/rnn/infer", question(1)).status == 200
    assert daemon.model("rnn")["loads"] == 1
    assert daemon.request("POST", "/v1/models/other/infer", question(1)).status == 200
    assert daemon.control("rnn", "unload")["freed_bytes"] > 0
    assert not processes.alive(worker)
