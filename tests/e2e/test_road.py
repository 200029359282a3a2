"""The road of one request: HTTP, serving, lifecycle, worker, engine, and back."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import onnxruntime
import pytest

import models
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon

IRIS_ROWS = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]


def reference(path: Path, **feeds: Any) -> dict[str, Any]:
    """What the engine itself answers for the original file."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def test_a_request_wakes_the_model_and_the_next_finds_it_warm(
    serve: Serve, models_dir: Path
) -> None:
    path = models.linear_model(models_dir / "iris.onnx")
    daemon = serve()
    assert daemon.model("iris")["state"] == "idle"
    assert daemon.model("iris")["loads"] == 0

    cold = daemon.infer("iris", tensor("X", [2, 4], IRIS_ROWS))
    warm = daemon.infer("iris", tensor("X", [2, 4], [*IRIS_ROWS[0], *IRIS_ROWS[1]]))

    wanted = reference(path, X=np.array(IRIS_ROWS, dtype=np.float32))
    for reply in (cold, warm):
        outputs = reply.outputs()
        assert outputs["label"] == wanted["label"].tolist()
        np.testing.assert_allclose(
            outputs["probabilities"], wanted["probabilities"].ravel(), rtol=1e-6
        )
        assert reply.headers["x-snooze-batch-size"] == "2"
        assert float(reply.headers["x-snooze-queue-ms"]) >= 0
    assert "x-snooze-cold-start-ms" not in warm.headers
    cold_start_ms = float(cold.headers["x-snooze-cold-start-ms"])
    assert 0 < cold_start_ms < 10_000

    model = daemon.model("iris")
    assert model["state"] == "ready"
    assert model["loads"] == 1
    assert 0 < model["cold_start_ms"] <= cold_start_ms * 1.1 + 1


def test_the_answer_has_the_fields_of_the_contract(awake: Daemon) -> None:
    answer = awake.infer("iris", tensor("X", [2, 4], IRIS_ROWS)).json()
    assert answer.keys() == {"model_id", "outputs", "duration_ms"}
    assert answer["model_id"] == "iris"
    assert answer["duration_ms"] > 0
    shapes = {o["name"]: (o["shape"], o["datatype"], len(o["data"])) for o in answer["outputs"]}
    assert shapes == {"label": ([2], "INT64", 2), "probabilities": ([2, 3], "FP32", 6)}


def test_only_the_outputs_asked_for_come_back_in_the_order_asked(awake: Daemon) -> None:
    asked = ["probabilities", "label"]
    answer = awake.infer("iris", tensor("X", [1, 4], IRIS_ROWS[0]), outputs=asked).json()
    assert [output["name"] for output in answer["outputs"]] == asked
    reply = awake.infer("iris", tensor("X", [1, 4], IRIS_ROWS[0]), outputs=["label"])
    assert reply.outputs().keys() == {"label"}


@pytest.mark.parametrize(
    ("model_id", "inputs", "outputs"),
    [
        ("echo", [tensor("x", [1, 3], [1, 2.5, -3])], {"y": [1.0, 2.5, -3.0]}),
        ("echo", [tensor("x", [2, 1], [[1], [2]], datatype="FP32")], {"y": [1.0, 2.0]}),
        ("echo", [tensor("x", [1, 2], [None, 1])], {"y": [None, 1.0]}),
        ("echo", [tensor("x", [0, 3], [])], {"y": []}),
        ("whole", [tensor("x", [1, 2], [101.0, -(2**63)])], {"y": [101, -(2**63)]}),
        ("text", [tensor("text", [2], ["grüß", "嗨"])], {"shout": ["grüß!", "嗨!"]}),
        ("number", [tensor("x", [], [21])], {"y": [42.0]}),
        (
            "rnn",
            [tensor("x", [1, 8], [1] * 8), tensor("state", [2, 1, 8], [0] * 16)],
            {"y": [1.0] * 8, "next_state": pytest.approx([0.7615942] * 16)},
        ),
    ],
)
def test_every_kind_of_tensor_travels(
    awake: Daemon, model_id: str, inputs: list[dict[str, Any]], outputs: dict[str, Any]
) -> None:
    assert awake.infer(model_id, *inputs).outputs() == outputs


def test_a_batch_dimension_that_is_fixed_at_one_takes_many_rows(
    serve: Serve, models_dir: Path
) -> None:
    path = models.fixed_batch_model(models_dir / "image.onnx")
    images = np.random.default_rng(7).standard_normal((3, 3, 4, 4)).astype(np.float32)
    wanted = np.concatenate([reference(path, image=image[None])["scores"] for image in images])

    outputs = serve().infer("image", tensor("image", [3, 3, 4, 4], images.tolist())).outputs()

    np.testing.assert_allclose(outputs["scores"], wanted.ravel(), rtol=1e-5)


def test_a_float_that_is_not_finite_comes_back_as_null(awake: Daemon) -> None:
    body = b'{"inputs":[{"name":"x","shape":[1,3],"data":[NaN, null, 1e39]}]}'
    reply = awake.request("POST", "/v1/models/echo/infer", body)
    # 1e39 is beyond FP32: whether it may become an infinity is decided by "nothing is lost".
    assert reply.status == 400
    body = body.replace(b"1e39", b"2")
    assert awake.request("POST", "/v1/models/echo/infer", body).outputs() == {"y": [None, None, 2]}


@pytest.mark.parametrize("model_id", ["größe", "a model", "100%", "嗨", "a+b&c=d", "v1.2"])
def test_ids_are_text_and_urls_carry_them_percent_encoded(
    serve: Serve, models_dir: Path, model_id: str
) -> None:
    models.identity_model(models_dir / f"{model_id}.onnx")
    daemon = serve()
    reply = daemon.infer(model_id, tensor("x", [1, 1], [4]))
    assert reply.outputs() == {"y": [4.0]}
    assert reply.json()["model_id"] == model_id
    assert daemon.model(model_id)["id"] == model_id
    lower_case = quote(model_id, safe="").lower()
    assert daemon.request("GET", f"/v1/models/{lower_case}").json()["id"] == model_id


def test_the_model_object_has_the_fields_of_the_contract(serve: Serve, models_dir: Path) -> None:
    path = models.linear_model(models_dir / "iris.onnx")
    daemon = serve('[models.iris]\ndescription = "flowers"\nmax_batch_size = 5\n')
    asleep = daemon.model("iris")
    assert asleep.keys() >= {
        *("id", "state", "onnx_path", "format", "description", "pinned", "idle_timeout_secs"),
        *("max_batch_size", "max_batch_delay_ms", "last_accessed_secs_ago", "memory_bytes"),
        *("replicas", "queue_depth", "inputs", "outputs", "device", "last_error", "loads"),
        "cold_start_ms",
    }
    wanted: dict[str, Any] = {
        "id": "iris",
        "state": "idle",
        "format": "onnx",
        "description": "flowers",
    }
    wanted |= {"pinned": False, "idle_timeout_secs": 300, "max_batch_delay_ms": 10}
    wanted |= {
        "max_batch_size": 5,
        "memory_bytes": 0,
        "vram_bytes": 0,
        "replicas": 0,
        "queue_depth": 0,
    }
    wanted |= {"last_error": None, "loads": 0}
    assert asleep == asleep | wanted
    assert Path(asleep["onnx_path"]) == path

    daemon.infer("iris", tensor("X", [1, 4], IRIS_ROWS[0]))
    awake = daemon.model("iris")
    assert awake["state"] == "ready"
    assert awake["replicas"] == 1
    assert awake["memory_bytes"] > 0
    assert awake["device"] == "cpu"
    assert 0 <= awake["last_accessed_secs_ago"] < 20
    assert awake["inputs"] == [{"name": "X", "datatype": "FP32", "shape": [-1, 4]}]
    assert [output["name"] for output in awake["outputs"]] == ["label", "probabilities"]
    (listed,) = daemon.request("GET", "/v1/models").json()
    moving = {"last_accessed_secs_ago", "memory_bytes"}
    assert listed == awake | {name: listed[name] for name in moving}


def test_the_root_says_where_everything_is(awake: Daemon) -> None:
    root = awake.request("GET", "/").json()
    assert root["name"] == "snoozeml"
    assert root["version"]
    assert root["endpoints"]


def test_a_sleeping_model_does_not_make_the_server_unready(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    assert daemon.request("GET", "/health/live").json() == {"status": "live"}
    assert daemon.request("GET", "/health/ready").json() == {"status": "ready"}
    assert daemon.model("echo")["state"] == "idle"


def test_metrics_count_what_happened(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    before = daemon.metrics()
    for _ in range(3):
        assert daemon.infer("echo", tensor("x", [1, 1], [1])).status == 200
    for _ in range(2):
        assert daemon.infer("echo", tensor("wrong", [1, 1], [1])).status == 400
    after = daemon.metrics()
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown['snoozeml_requests_total{status="all"}'] == 5
    assert grown['snoozeml_requests_total{status="success"}'] == 3
    assert grown['snoozeml_requests_total{status="error"}'] == 2
    assert grown["snoozeml_batches_dispatched_total"] == 3
    assert 0 < grown["snoozeml_inference_latency_seconds_total"] < 60
    for reason in ("oom", "idle", "capacity"):
        assert after[f'snoozeml_model_deallocations_total{{reason="{reason}"}}'] == 0
