"""Metrics of a running daemon: every series says what its clients have seen."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL, SIGSEGV

import pytest

import models
from e2e import processes
from e2e.client import Reply, infer_body, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually

STATES = ("idle", "loading", "ready", "busy", "failed")


@pytest.fixture(autouse=True)
def echo(models_dir: Path) -> Path:
    return models.identity_model(models_dir / "echo.onnx")


def ask(daemon: Daemon, number: int = 1, model_id: str = "echo") -> Reply:
    return daemon.infer(model_id, tensor("x", [1, 1], [number]))


def series(name: str, model_id: str = "echo", **labels: str) -> str:
    """A sample's name in `Daemon.metrics`, without `snoozeml_model_`."""
    pairs = {"model": model_id, **labels}
    text = ",".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))
    return f"snoozeml_model_{name}{{{text}}}"


def requests(daemon: Daemon, model_id: str = "echo") -> tuple[float, float]:
    metrics = daemon.metrics()
    found = (metrics[series("requests_total", model_id, status=s)] for s in ("success", "error"))
    return next(found), next(found)


def restarts(daemon: Daemon) -> dict[str, float]:
    metrics, reasons = daemon.metrics(), ("crash", "hang", "killed", "oom")
    counts = {reason: metrics[series("restarts_total", reason=reason)] for reason in reasons}
    return {reason: count for reason, count in counts.items() if count}


def state(daemon: Daemon, model_id: str = "echo") -> str:
    metrics = daemon.metrics()
    (found,) = (s for s in STATES if metrics[series("state", model_id, state=s)])
    return found


def total(daemon: Daemon, status: str) -> float:
    return daemon.metrics()[f'snoozeml_requests_total{{status="{status}"}}']


def test_requests_and_errors_and_no_label_for_what_is_no_model(serve: Serve) -> None:
    daemon = serve()
    for number in range(3):
        assert ask(daemon, number).status == 200
    assert daemon.infer("echo", tensor("wrong", [1, 1], [1])).status == 400
    assert ask(daemon, model_id="nobody").status == 404  # no inference, whatever it was
    assert requests(daemon) == (3, 1)
    assert (total(daemon, "success"), total(daemon, "error")) == (3, 1)
    metrics = daemon.metrics()
    assert not [name for name in metrics if "nobody" in name]
    (latency_s, count), (queue_s, queued) = (
        (metrics[series(f"{name}_seconds_sum")], metrics[series(f"{name}_seconds_count")])
        for name in ("latency", "queue")
    )
    assert (count, queued) == (3, 3)
    assert 0 < queue_s < latency_s
    assert latency_s == metrics["snoozeml_inference_latency_seconds_total"]


def test_cold_starts_are_those_that_the_headers_tell_of(serve: Serve) -> None:
    daemon = serve()
    told_s = []
    for _ in range(3):
        told_s.append(float(ask(daemon).headers["x-snooze-cold-start-ms"]) / 1000)
        assert "x-snooze-cold-start-ms" not in ask(daemon).headers
        daemon.control("echo", "unload")
    metrics = daemon.metrics()
    assert metrics[series("cold_start_seconds_count")] == 3
    assert metrics[series("cold_start_seconds_sum")] == pytest.approx(sum(told_s), abs=0.001)
    assert metrics[series("cold_start_seconds_bucket", le="30.0")] == 3
    assert restarts(daemon) == {}, "who was asked to leave has not ended unexpectedly"


def test_state_replicas_and_memory_follow_the_model(serve: Serve) -> None:
    daemon = serve()
    assert state(daemon) == "idle"
    daemon.control("echo", "load")
    assert state(daemon) == "ready"
    metrics = daemon.metrics()
    assert metrics[series("replicas")] == 1
    assert 2**20 < metrics[series("memory_bytes")] < 2**30
    assert series("vram_bytes") not in metrics
    assert metrics["snoozeml_memory_bytes"] == metrics[series("memory_bytes")]
    assert metrics["snoozeml_memory_bytes"] < metrics["snoozeml_memory_limit_bytes"]
    assert (metrics["snoozeml_models_loaded"], metrics["snoozeml_workers"]) == (1, 1)
    daemon.control("echo", "unload")
    metrics = daemon.metrics()
    assert (metrics[series("replicas")], metrics[series("memory_bytes")]) == (0, 0)
    assert (metrics["snoozeml_models_loaded"], metrics["snoozeml_workers"]) == (0, 0)
    assert state(daemon) == "idle"


def test_a_model_that_cannot_be_loaded_is_shown_as_failed(serve: Serve, models_dir: Path) -> None:
    (models_dir / "broken.onnx").write_bytes(b"this is not a model")
    daemon = serve()
    assert ask(daemon, model_id="broken").status == 503
    assert state(daemon, "broken") == "failed"
    assert requests(daemon, "broken") == (0, 1)
    assert series("cold_start_seconds_count", "broken") not in daemon.metrics()


def test_a_scrape_wakes_nobody(serve: Serve) -> None:
    daemon = serve()
    for _ in range(3):
        daemon.metrics()
    assert daemon.workers() == []


@pytest.mark.parametrize(("signal", "reason"), [(SIGSEGV, "crash"), (SIGKILL, "killed")])
def test_what_ended_a_worker_and_what_it_counted_before(
    serve: Serve, signal: int, reason: str
) -> None:
    daemon = serve()
    assert ask(daemon).status == 200
    os.kill(daemon.worker(), signal)
    eventually(lambda: daemon.model("echo")["state"] == "idle", "the death is noticed")
    assert restarts(daemon) == {reason: 1}
    assert ask(daemon).status == 200
    assert requests(daemon) == (2, 0)
    assert daemon.metrics()[series("batch_size_count")] == 2
    assert daemon.metrics()[series("cold_start_seconds_count")] == 2


def test_a_worker_that_hangs_is_restarted_for_that(serve: Serve) -> None:
    daemon = serve("[defaults]\nexec_timeout_secs = 0.5\n")
    daemon.control("echo", "load")
    with processes.frozen(daemon.worker()):
        assert ask(daemon).status == 200
    assert restarts(daemon) == {"hang": 1}


def test_what_waits_is_shown(serve: Serve) -> None:
    daemon = serve("[defaults]\nmax_batch_size = 1\nmax_replicas = 1\n")
    daemon.control("echo", "load")
    with ThreadPoolExecutor(5) as pool:
        with processes.frozen(daemon.worker()):
            sent = [pool.submit(ask, daemon, number) for number in range(5)]
            eventually(lambda: daemon.metrics()["snoozeml_queue_depth"] == 3, "two are sent on")
            assert state(daemon) == "busy"
        assert [future.result().status for future in sent] == [200] * 5
    assert daemon.metrics()["snoozeml_queue_depth"] == 0


def test_batches_are_those_that_the_headers_tell_of(serve: Serve) -> None:
    """Also across replicas; each request has one row, so n answers of size n are one batch."""
    daemon = serve("[defaults]\nmax_batch_size = 4\nautoscale_queue_threshold = 2\n")
    daemon.control("echo", "load")
    with ThreadPoolExecutor(30) as pool:
        with processes.frozen(daemon.worker()):
            sent = [pool.submit(ask, daemon, number) for number in range(30)]
            eventually(lambda: daemon.model("echo")["replicas"] > 1, "there is help")
        replies = [future.result() for future in sent]
    batches = batches_of(replies)
    assert any(size > 1 for size in batches)
    assert histogram(daemon) == pytest.approx(
        [sum(n for size, n in batches.items() if size <= bound) for bound in (1, 2, 4)]
    )
    metrics = daemon.metrics()
    assert metrics[series("batch_size_count")] == sum(batches.values())
    assert metrics[series("batch_size_sum")] == 30
    assert metrics["snoozeml_batches_dispatched_total"] == sum(batches.values())


def batches_of(replies: list[Reply]) -> dict[int, int]:
    sizes = Counter(int(reply.headers["x-snooze-batch-size"]) for reply in replies)
    assert all(count % size == 0 for size, count in sizes.items())
    return {size: count // size for size, count in sizes.items()}


def histogram(daemon: Daemon) -> list[float]:
    metrics = daemon.metrics()
    return [metrics[series("batch_size_bucket", le=bound)] for bound in ("1.0", "2.0", "4.0")]


def test_a_run_that_fails_is_a_run(serve: Serve, models_dir: Path) -> None:
    models.hungry_model(models_dir / "hungry.onnx")
    daemon = serve()
    reply = daemon.infer("hungry", tensor("mib", [1, 1], [2**30]))
    assert reply.json()["code"] == "out_of_memory", reply
    metrics = daemon.metrics()
    runs = metrics["snoozeml_batches_dispatched_total"]
    assert runs >= 1
    assert metrics[series("batch_size_count", "hungry")] == runs
    assert metrics[series("batch_size_sum", "hungry")] == runs
    eventually(lambda: restarts_of(daemon, "hungry", "oom") >= 1, "its worker is replaced")


def restarts_of(daemon: Daemon, model_id: str, reason: str) -> float:
    return daemon.metrics()[series("restarts_total", model_id, reason=reason)]


def test_a_model_that_is_removed_leaves_the_totals_as_they_are(
    serve: Serve, models_dir: Path
) -> None:
    other = models.identity_model(models_dir / "other.onnx")
    daemon = serve()
    for model_id in ("echo", "other", "other"):
        assert ask(daemon, model_id=model_id).status == 200
    before = daemon.metrics()
    other.unlink()
    daemon.refresh()
    after = daemon.metrics()
    assert not [name for name in after if "other" in name]
    eventually(lambda: len(daemon.workers()) == 1, "its worker has left")
    for metrics in (after, daemon.metrics()):
        for name in (
            'snoozeml_requests_total{status="all"}',
            'snoozeml_requests_total{status="success"}',
            "snoozeml_batches_dispatched_total",
        ):
            assert metrics[name] == before[name] == 3
    assert requests(daemon) == (1, 0)

    models.identity_model(other)
    daemon.refresh()
    assert requests(daemon, "other") == (0, 0), "a model that comes back starts anew"


def test_without_credentials_nobody_learns_which_models_there_are(serve: Serve) -> None:
    daemon = serve(
        '[[auth.api_keys]]\nname = "k"\nkey = "a-key-that-is-long-enough"\nrole = "inference"\n'
    )
    body = infer_body(tensor("x", [1, 1], [1]))
    headers = {"X-API-Key": "a-key-that-is-long-enough"}
    assert daemon.request("POST", "/v1/models/echo/infer", body, headers).status == 200
    for stranger in ({}, {"X-API-Key": "wrong"}):
        shown = daemon.request("GET", "/metrics", headers=stranger)
        assert shown.status == 200
        assert b"echo" not in shown.body
        assert b'snoozeml_requests_total{status="success"} 1.0' in shown.body
    known = daemon.request("GET", "/metrics", headers=headers)
    assert b'snoozeml_model_requests_total{model="echo",status="success"} 1' in known.body
