"""Who waits for room gets it as soon as there is some, or a plain word why not."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually

ONE = tensor("x", [1, 1], [1.0])
LOAD_V2 = "v2/repository/models/b/load"
ONE_PLACE = "[defaults]\nmax_loaded_models = 1\nmin_residency_secs = 0\nidle_timeout_secs = 60\n"


@pytest.fixture
def one_place(serve: Serve, models_dir: Path) -> Daemon:
    """Room for one of the models `a` and `b`."""
    for name in ("a", "b"):
        models.identity_model(models_dir / f"{name}.onnx")
    return serve(ONE_PLACE)


def test_a_model_that_was_loaded_for_nobody_makes_room(one_place: Daemon) -> None:
    reply = one_place.request("POST", "/v1/models/a/load?wait=false")
    assert reply.json()["status"] in ("loading", "loaded")
    assert one_place.infer("b", ONE, timeout_ms=8000).status == 200
    assert one_place.model("a")["state"] == "idle"


def test_an_unpinned_model_makes_room_at_once(one_place: Daemon) -> None:
    one_place.control("a", "pin")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one_place.infer, "b", ONE, timeout_ms=8000)
        eventually(lambda: one_place.model("b")["state"] == "loading", "it waits")
        one_place.control("a", "unpin")
        assert waiting.result().status == 200


def test_a_deaf_model_keeps_its_place_for_a_moment_only(one_place: Daemon) -> None:
    one_place.control("a", "load")
    with processes.frozen(one_place.worker()):
        assert one_place.infer("b", ONE, timeout_ms=8000).status == 200


def test_waiting_in_vain_ends_at_the_deadline_with_the_reason(one_place: Daemon) -> None:
    one_place.control("a", "pin")
    started = time.monotonic()
    reply = one_place.infer("b", ONE, timeout_ms=300)
    assert time.monotonic() - started < 2
    assert (reply.status, reply.json()["code"]) == (503, "overloaded")
    assert "max_loaded_models" in reply.json()["error"]
    assert "retry-after" in reply.headers
    eventually(lambda: one_place.model("b")["state"] == "idle", "nobody waits any more")


def test_a_load_that_waits_says_for_what(serve: Serve, models_dir: Path) -> None:
    for name in ("a", "b"):
        models.identity_model(models_dir / f"{name}.onnx")
    daemon = serve(ONE_PLACE.replace("min_residency_secs = 0", "min_residency_secs = 2"))
    daemon.control("a", "load")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(daemon.infer, "b", ONE, timeout_ms=8000)
        eventually(lambda: daemon.model("b")["waits_for"] is not None, "it waits")
        why = daemon.model("b")["waits_for"]
        assert waiting.result().status == 200
    assert "1 of 1 models" in why
    assert "max_loaded_models" in why
    assert "min_residency_secs" in why
    assert daemon.model("b")["waits_for"] is None
    told = [line for line in daemon.log() if line["event"] == "waits for room"]
    assert [line["model"] for line in told] == ["b"]
    assert "1 of 1 models" in told[0]["why"]


@contextmanager
def busy(daemon: Daemon) -> Iterator[None]:
    """Model `a` holds a request, and does not leave while it does."""
    daemon.control("a", "load")
    with ThreadPoolExecutor(1) as pool:
        with processes.frozen(daemon.worker()):
            held = pool.submit(daemon.infer, "a", ONE)
            eventually(lambda: daemon.model("a")["state"] == "busy", "the request is there")
            yield
        assert held.result().status == 200


def test_unloading_a_model_that_waits_for_room_ends_its_wait(one_place: Daemon) -> None:
    with busy(one_place), ThreadPoolExecutor(1) as pool:
        loading = pool.submit(one_place.request, "POST", "/v1/models/b/load")
        eventually(lambda: one_place.model("b")["state"] == "loading", "it waits")
        assert one_place.control("b", "unload")["status"] == "unloaded"
        assert loading.result().status == 503
    assert one_place.model("a")["state"] == "ready"


@pytest.mark.parametrize("verb", ["load", "pin"])
def test_a_load_is_refused_at_once_where_no_model_may_ever_leave(
    one_place: Daemon, verb: str
) -> None:
    one_place.control("a", "pin")
    started = time.monotonic()
    reply = one_place.request("POST", f"/v1/models/b/{verb}")
    assert time.monotonic() - started < 2
    assert (reply.status, reply.json()["code"]) == (503, "overloaded")
    assert "max_loaded_models" in reply.json()["error"]
    eventually(lambda: one_place.model("b")["state"] == "idle", "it waits no more")
    assert one_place.model("b")["pinned"] is False


@pytest.mark.parametrize("target", ["v1/models/b/load", "v1/models/b/pin", LOAD_V2])
def test_a_load_whose_client_has_left_waits_no_more(one_place: Daemon, target: str) -> None:
    with busy(one_place):
        with socket.create_connection(one_place.address) as client:
            client.sendall(b"POST /%b HTTP/1.1\r\nHost: a\r\n\r\n" % target.encode())
            eventually(lambda: one_place.model("b")["state"] == "loading", "it waits")
        eventually(lambda: one_place.model("b")["state"] == "idle", "nobody waits any more")
        assert one_place.model("b")["pinned"] is False
    assert one_place.model("b")["loads"] == 0
    assert not [line for line in one_place.log() if line["level"] == "error"]


def test_a_crowd_at_one_model_does_not_lock_out_another(serve: Serve, models_dir: Path) -> None:
    models.slow_model(models_dir / "a.onnx", 30)
    models.identity_model(models_dir / "b.onnx")
    settings = "max_batch_size = 1\nautoscale_queue_threshold = 1\n"
    daemon = serve(ONE_PLACE + settings)
    daemon.control("a", "load")
    with ThreadPoolExecutor(12) as pool:
        crowd = [pool.submit(daemon.infer, "a", ONE) for _ in range(10)]
        waiting = pool.submit(daemon.infer, "b", ONE, timeout_ms=10_000)
        assert {future.result().status for future in crowd} == {200}
        assert waiting.result().status == 200


def test_a_model_larger_than_all_memory_disturbs_nobody(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "small.onnx")
    models.encoder_model(models_dir / "large.onnx", layers=1, hidden=384, vocab=30522, heads=12)
    daemon = serve('[server]\nmax_memory = "60MiB"\n[defaults]\nmin_residency_secs = 0\n')
    daemon.control("small", "load")
    reply = daemon.request("POST", "/v1/models/large/load")
    assert (reply.status, reply.json()["code"]) == (503, "out_of_memory")
    assert "60 MiB" in reply.json()["error"]
    assert daemon.model("small")["state"] == "ready"
    assert daemon.model("small")["loads"] == 1
