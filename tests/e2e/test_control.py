"""Loading, unloading, pinning, falling asleep, and what the models folder holds."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGHUP

import pytest
from onnx import helper

import models
from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.eventually import eventually

ONE = tensor("x", [1, 1], [1])


@pytest.fixture
def echo(models_dir: Path) -> Path:
    return models.identity_model(models_dir / "echo.onnx")


def test_load_makes_a_process_and_unload_ends_it(serve: Serve, echo: Path) -> None:
    daemon = serve()
    assert daemon.workers() == []
    loaded = daemon.control("echo", "load")
    assert loaded == loaded | {"model_id": "echo", "status": "loaded", "pinned": False}
    worker = daemon.worker()

    unloaded = daemon.control("echo", "unload")

    assert unloaded == unloaded | {"model_id": "echo", "status": "unloaded", "pinned": False}
    assert unloaded["freed_bytes"] > 0
    assert not processes.alive(worker)
    assert daemon.model("echo")["state"] == "idle"
    assert daemon.model("echo")["memory_bytes"] == 0


def test_load_and_unload_may_be_asked_twice(serve: Serve, echo: Path) -> None:
    daemon = serve()
    assert daemon.control("echo", "unload")["freed_bytes"] == 0
    daemon.control("echo", "load")
    daemon.control("echo", "load")
    assert daemon.model("echo")["loads"] == 1
    daemon.control("echo", "unload")
    assert daemon.control("echo", "unload")["freed_bytes"] == 0


def test_pin_loads_first_and_a_pinned_model_stays(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "kept.onnx")
    models.identity_model(models_dir / "other.onnx")
    daemon = serve("[defaults]\nidle_timeout_secs = 1\n")
    pinned = daemon.control("kept", "pin")
    assert pinned == pinned | {"model_id": "kept", "status": "pinned", "pinned": True}
    assert daemon.model("kept")["state"] == "ready"
    assert daemon.model("kept")["pinned"] is True

    # The other model's idle time starts later: when it has ended, the pinned one's would have too.
    daemon.control("other", "load")
    eventually(lambda: daemon.model("other")["state"] == "idle", "the other model sleeps")
    assert daemon.model("kept")["state"] == "ready"

    unpinned = daemon.control("kept", "unpin")
    assert unpinned == unpinned | {"model_id": "kept", "status": "unpinned", "pinned": False}
    eventually(lambda: daemon.model("kept")["state"] == "idle", "an unpinned model sleeps")


def test_a_model_pinned_by_its_settings_is_loaded_at_the_start(serve: Serve, echo: Path) -> None:
    daemon = serve("[defaults]\nidle_timeout_secs = 1\n[models.echo]\npinned = true\n")
    eventually(lambda: daemon.model("echo")["state"] == "ready", "the pinned model is loaded")
    assert daemon.model("echo")["pinned"] is True


def test_a_model_falls_asleep_and_wakes_again(serve: Serve, echo: Path) -> None:
    daemon = serve("[defaults]\nidle_timeout_secs = 1\n")
    assert daemon.infer("echo", ONE).status == 200
    worker = daemon.worker()
    eventually(lambda: not processes.alive(worker), "the worker of an idle model leaves")
    eventually(lambda: daemon.model("echo")["state"] == "idle", "the model is idle")
    assert daemon.metrics()['snoozeml_model_deallocations_total{reason="idle"}'] == 1
    assert "x-snooze-cold-start-ms" in daemon.infer("echo", ONE).headers
    assert daemon.model("echo")["loads"] == 2


def test_idle_time_counts_from_the_last_answer_and_never_while_busy(
    serve: Serve, echo: Path
) -> None:
    daemon = serve("[defaults]\nidle_timeout_secs = 1\n")
    daemon.control("echo", "load")
    worker = daemon.worker()
    with ThreadPoolExecutor(1) as pool:
        with processes.frozen(worker):
            pending = pool.submit(daemon.infer, "echo", ONE)
            eventually(lambda: daemon.model("echo")["state"] == "busy", "the request is there")
            time.sleep(1.5)  # longer than the idle timeout, and nothing may happen
            assert daemon.model("echo")["state"] == "busy"
            released = time.monotonic()
        assert pending.result().outputs() == {"y": [1.0]}
    eventually(lambda: not processes.alive(worker), "the worker leaves")
    assert time.monotonic() - released >= 1.0
    assert daemon.model("echo")["loads"] == 1


def test_a_model_that_is_used_now_and_then_stays_awake(serve: Serve, echo: Path) -> None:
    """Used for longer than the idle timeout, with pauses that are shorter."""
    daemon = serve("[defaults]\nidle_timeout_secs = 1\n")
    daemon.control("echo", "load")
    worker = daemon.worker()
    started = answered = time.monotonic()
    while answered < started + 1.5:
        time.sleep(0.3)
        assert daemon.infer("echo", ONE).status == 200
        answered = time.monotonic()
    assert daemon.model("echo")["loads"] == 1
    eventually(lambda: not processes.alive(worker), "the worker leaves")
    assert time.monotonic() - answered >= 0.95, "the idle time was counted from too early"


def test_unload_while_busy_answers_what_is_in_flight_first(serve: Serve, echo: Path) -> None:
    daemon = serve()
    daemon.control("echo", "load")
    worker = daemon.worker()
    with ThreadPoolExecutor(4) as pool:
        with processes.frozen(worker):
            answers = [pool.submit(daemon.infer, "echo", tensor("x", [1, 1], [i])) for i in (1, 2)]
            eventually(lambda: daemon.model("echo")["state"] == "busy", "the requests are there")
            unload = pool.submit(daemon.control, "echo", "unload")
            with pytest.raises(TimeoutError):
                unload.result(0.3)
            # It comes while the model is on its way out: it waits, and wakes the model again.
            late = pool.submit(daemon.infer, "echo", tensor("x", [1, 1], [3]))
        assert [answer.result().outputs() for answer in answers] == [{"y": [1.0]}, {"y": [2.0]}]
        assert unload.result()["freed_bytes"] > 0
        assert late.result().outputs() == {"y": [3.0]}
    assert not processes.alive(worker)


def _ids(daemon: Daemon) -> list[str]:
    return [model["id"] for model in daemon.request("GET", "/v1/models").json()]


def test_refresh_finds_new_files_and_forgets_removed_ones(
    serve: Serve, echo: Path, models_dir: Path
) -> None:
    daemon = serve()
    models.scalar_model(models_dir / "number.onnx")
    assert _ids(daemon) == ["echo"]
    assert daemon.request("GET", "/v1/models/number").status == 404

    assert [model["id"] for model in daemon.refresh()["models"]] == ["echo", "number"]
    assert daemon.infer("number", tensor("x", [], [1])).outputs() == {"y": [2.0]}

    worker = daemon.worker()
    (models_dir / "number.onnx").unlink()
    daemon.refresh()
    assert _ids(daemon) == ["echo"]
    assert daemon.infer("number", tensor("x", [], [1])).status == 404
    eventually(lambda: not processes.alive(worker), "the worker of a removed model leaves")


def test_refresh_serves_new_content_under_the_old_name(serve: Serve, echo: Path) -> None:
    daemon = serve()
    assert daemon.infer("echo", tensor("x", [1, 1], [4])).outputs() == {"y": [4.0]}
    doubled = helper.make_node("Add", ["x", "x"], ["y"])
    shape = ["batch", "features"]
    models.save(echo, [doubled], [models.value("x", shape)], [models.value("y", shape)])
    daemon.refresh()
    assert daemon.infer("echo", tensor("x", [1, 1], [4])).outputs() == {"y": [8.0]}


def test_refresh_leaves_models_alone_that_did_not_change(serve: Serve, echo: Path) -> None:
    daemon = serve()
    daemon.control("echo", "load")
    worker = daemon.worker()
    daemon.refresh()
    assert daemon.infer("echo", ONE).status == 200
    assert daemon.workers() == [worker]


def test_a_hang_up_signal_refreshes_and_a_wrong_configuration_changes_nothing(
    serve: Serve, echo: Path, models_dir: Path
) -> None:
    daemon = serve()
    models.scalar_model(models_dir / "number.onnx")
    daemon.send_signal(SIGHUP)
    eventually(lambda: _ids(daemon) == ["echo", "number"], "the new model is found")

    (models_dir / "models.toml").write_text("[modells]\n")
    daemon.send_signal(SIGHUP)
    eventually(
        lambda: any("nothing was changed" in line["event"] for line in daemon.log()),
        "the log says what is wrong",
    )
    assert _ids(daemon) == ["echo", "number"]


def test_a_refresh_tells_what_has_changed_and_what_waits_for_the_next_start(
    serve: Serve, echo: Path, models_dir: Path
) -> None:
    daemon = serve()
    unchanged = daemon.refresh()
    assert [unchanged[key] for key in ("added", "removed", "changed", "needs_restart")] == [[]] * 4
    models.scalar_model(models_dir / "number.onnx")
    listed = daemon.request("GET", "/v1/models")
    assert listed.headers["x-snooze-models-dir"] == str(models_dir)
    settings = "[server]\nmax_request_bytes = 99999\n[models.echo]\nmax_batch_size = 5\n"
    (models_dir / "models.toml").write_text(settings)
    changed = daemon.refresh()
    assert [model["id"] for model in changed["models"]] == ["echo", "number"]
    assert (changed["added"], changed["changed"]) == (["number"], ["echo"])
    assert changed["needs_restart"] == ["max_request_bytes"]

    (models_dir / "number.onnx").unlink()
    daemon.send_signal(SIGHUP)
    told = eventually(
        lambda: [line for line in daemon.log() if line.get("removed") == ["number"]],
        "the log tells the same",
    )
    assert told[0]["event"] == "refreshed"
    warned = [line["event"] for line in daemon.log() if line["level"] == "warning"]
    assert any("max_request_bytes" in line for line in warned)


def test_a_model_that_cannot_load_says_why_backs_off_and_recovers(
    serve: Serve, models_dir: Path
) -> None:
    path = models_dir / "broken.onnx"
    path.write_bytes(b"this is not a model")
    daemon = serve()

    first = daemon.infer("broken", ONE)
    assert (first.status, first.json()["code"]) == (503, "model_failed")
    second = daemon.infer("broken", ONE)
    assert (second.status, second.json()["code"]) == (503, "model_failed")
    assert int(second.headers["retry-after"]) >= 1
    model = daemon.model("broken")
    assert model["state"] == "idle"  # old clients know no other word; scripts look at the error
    assert model["last_error"]
    assert model["last_error"] in second.json()["error"]

    models.identity_model(path)
    daemon.refresh()
    reply = eventually(
        lambda: (r := daemon.infer("broken", ONE)).status == 200 and r, "the mended model answers"
    )
    assert reply
    assert reply.outputs() == {"y": [1.0]}
    assert daemon.model("broken")["last_error"] is None


def test_a_failed_load_asked_for_is_an_error_too(serve: Serve, models_dir: Path) -> None:
    (models_dir / "broken.onnx").write_bytes(b"this is not a model")
    daemon = serve()
    for verb in ("load", "pin"):
        reply = daemon.request("POST", f"/v1/models/broken/{verb}")
        assert (reply.status, reply.json()["code"]) == (503, "model_failed")
    assert daemon.model("broken")["pinned"] is False


def test_a_failure_is_tried_again_by_itself_when_its_time_has_come(
    serve: Serve, models_dir: Path
) -> None:
    """The negative cache has an end, without a refresh: the file is mended in place."""
    path = models_dir / "broken.onnx"
    path.write_bytes(b"this is not a model")
    daemon = serve()
    assert daemon.infer("broken", ONE).status == 503
    models.identity_model(path)
    eventually(lambda: daemon.infer("broken", ONE).status == 200, "the mended model answers")


@pytest.mark.parametrize("linger", [0, 1])
def test_the_spare_leaves_when_nothing_is_loaded(serve: Serve, echo: Path, linger: int) -> None:
    daemon = serve(f"[server]\nspare_linger_secs = {linger}\n")
    assert daemon.infer("echo", ONE).status == 200
    daemon.control("echo", "unload")
    eventually(lambda: daemon.tree() == [daemon.pid], "only the daemon is left")
    assert daemon.infer("echo", ONE).outputs() == {"y": [1.0]}
