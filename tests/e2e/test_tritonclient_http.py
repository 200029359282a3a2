"""`/v2` as Triton's own client sees it, blocking and with asyncio."""

import asyncio
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from e2e import v2_models
from e2e.daemon import Daemon

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], np.float32)


@pytest.fixture
def client(v2: Daemon) -> Iterator[Any]:
    client = triton.InferenceServerClient(v2.ready["http"])
    yield client
    client.close()


def given(name: str, array: Any, datatype: str, *, binary: bool = True) -> Any:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def wanted(name: str, **how: Any) -> Any:
    return triton.InferRequestedOutput(name, **how)


# What it says about itself


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    about = client.get_server_metadata()
    assert about["name"] == "snoozeml"
    assert {"binary_tensor_data", "schedule_policy", "statistics"} <= set(about["extensions"])
    assert not set(about["extensions"]) & {"system_shared_memory", "trace", "logging", "sequence"}
    assert client.is_model_ready("iris")
    assert client.is_model_ready("iris", "1")
    assert not client.is_model_ready("iris", "2")
    assert not client.is_model_ready("nobody")


def test_model_metadata_and_configuration(client: Any) -> None:
    assert client.get_model_metadata("iris") == {
        "name": "iris",
        "versions": ["1"],
        "platform": "snoozeml_onnx",
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [
            {"name": "label", "datatype": "INT64", "shape": [-1]},
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, 3]},
        ],
    }
    config = client.get_model_config("iris", "1")
    assert config["max_batch_size"] == 16
    assert [tensor["name"] for tensor in config["input"]] == ["X"]
    assert "dynamic_batching" in config
    with pytest.raises(InferenceServerException, match=r"\[404\] Model not found: nobody"):
        client.get_model_metadata("nobody")


# Inference


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("datatype", sorted(v2_models.DTYPES))
def test_numbers_of_every_datatype(
    client: Any, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    array = v2_models.some_values(datatype)
    result = client.infer(
        datatype,
        [given("x", array, datatype, binary=binary_in)],
        outputs=[wanted("y", binary_data=binary_out)],
        request_id="an id",
    )
    np.testing.assert_array_equal(result.as_numpy("y"), array)
    assert result.get_output("y")["datatype"] == datatype
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == (
        "an id", datatype, "1",
    )  # fmt: skip


def test_bf16(client: Any) -> None:
    array = np.array([[1.5, -2.0, 3.25e38]], ml_dtypes.bfloat16)
    result = client.infer("FP32", [given("x", array, "BF16")])
    np.testing.assert_array_equal(result.as_numpy("y"), array.astype(np.float32))


@pytest.mark.parametrize("binary", [True, False])
def test_strings(client: Any, binary: bool) -> None:
    texts = np.array(["é", "", "two words"], object)
    result = client.infer(
        "text",
        [given("text", texts, "BYTES", binary=binary)],
        outputs=[wanted("shout", binary_data=binary)],
    )
    answers = [
        value if isinstance(value, str) else value.decode() for value in result.as_numpy("shout")
    ]
    assert answers == ["é!", "!", "two words!"]


def test_scalars_and_tensors_without_rows(client: Any) -> None:
    scalar = client.infer("number", [given("x", np.array(1.5, np.float32), "FP32")])
    assert scalar.as_numpy("y") == 3.0
    empty = client.infer("iris", [given("X", np.zeros((0, 4), np.float32), "FP32")])
    assert empty.as_numpy("probabilities").shape == (0, 3)


def test_several_outputs_and_classification(client: Any) -> None:
    plain = client.infer("iris", [given("X", ROWS, "FP32")])
    labels, scores = plain.as_numpy("label"), plain.as_numpy("probabilities")
    assert (labels.shape, scores.shape) == ((2,), (2, 3))
    best = client.infer(
        "iris",
        [given("X", ROWS, "FP32")],
        outputs=[wanted("probabilities", class_count=2), wanted("label", binary_data=False)],
    )
    np.testing.assert_array_equal(best.as_numpy("label"), labels)
    classes = best.as_numpy("probabilities")
    assert classes.shape == (2, 2)
    for row, label, score in zip(classes, labels, scores, strict=True):
        value, index = row[0].decode().split(":")
        assert int(index) == label
        assert float(value) == pytest.approx(score[label], abs=1e-6)


def test_a_python_model_that_declares_nothing(client: Any) -> None:
    result = client.infer("open", [given("x", np.array([[2], [3]], np.int16), "INT16")])
    assert result.as_numpy("y").tolist() == [[4], [6]]
    assert client.get_model_metadata("open")["inputs"] == []


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression_both_ways(client: Any, algorithm: str) -> None:
    array = np.arange(3000, dtype=np.float32).reshape(1, -1).round(-2)
    for binary in (True, False):
        result = client.infer(
            "FP32",
            [given("x", array, "FP32", binary=binary)],
            outputs=[wanted("y", binary_data=binary)],
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )
        np.testing.assert_array_equal(result.as_numpy("y"), array)


def test_parameters(client: Any) -> None:
    tensors = [given("X", ROWS, "FP32")]
    client.infer("iris", tensors, priority=1, timeout=10_000_000, parameters={"mine": 7})
    with pytest.raises(InferenceServerException, match=r"\[400\] .*sequences are not supported"):
        client.infer("iris", tensors, sequence_id=7, sequence_start=True)
    with pytest.raises(InferenceServerException, match=r"\[504\]"):
        client.infer("iris", tensors, timeout=1)


def test_what_is_wrong_is_said_in_words(client: Any) -> None:
    with pytest.raises(InferenceServerException, match=r"\[400\] unknown input 'Z'"):
        client.infer("iris", [given("Z", ROWS, "FP32")])
    with pytest.raises(InferenceServerException, match=r"\[400\] shape mismatch"):
        client.infer("iris", [given("X", ROWS.T.copy(), "FP32")])
    with pytest.raises(InferenceServerException, match=r"\[404\].*version '9'"):
        client.infer("iris", [given("X", ROWS, "FP32")], model_version="9")
    with pytest.raises(InferenceServerException, match=r"\[501\] shared memory"):
        client.get_system_shared_memory_status()
    with pytest.raises(InferenceServerException, match=r"\[501\]"):
        client.get_trace_settings()
    with pytest.raises(InferenceServerException, match=r"\[501\]"):
        client.get_log_settings()


# The repository and the counts


def test_models_are_loaded_and_unloaded(client: Any, v2: Daemon) -> None:
    index = {model["name"]: model for model in client.get_model_repository_index()}
    assert index["image"] == {"name": "image", "version": "1", "state": "READY", "reason": ""}
    client.load_model("image")
    assert v2.model("image")["state"] == "ready"
    client.unload_model("image")
    assert v2.model("image")["state"] == "idle"
    assert client.is_model_ready("image")
    assert not client.is_model_ready("image", query_params={"strict": 1})
    with pytest.raises(InferenceServerException, match=r"\[400\] parameter 'config'"):
        client.load_model("image", config="{}")
    with pytest.raises(InferenceServerException, match=r"\[404\]"):
        client.load_model("nobody")


def test_statistics_count_rows_and_runs(client: Any) -> None:
    def counts() -> Any:
        (stats,) = client.get_inference_statistics("image")["model_stats"]
        return stats

    image = np.zeros((3, 3, 4, 4), np.float32)
    client.infer("image", [given("image", image, "FP32")])
    before = counts()
    client.infer("image", [given("image", image, "FP32")])
    after = counts()
    assert after["inference_stats"]["success"]["count"] == (
        before["inference_stats"]["success"]["count"] + 1
    )
    assert after["last_inference"] >= before["last_inference"] > 0
    assert after["inference_stats"]["queue"]["ns"] > 0
    assert after["inference_count"] > before["inference_count"] > 0
    assert after["execution_count"] > before["execution_count"] > 0
    everything = client.get_inference_statistics()["model_stats"]
    assert {"image", "iris"} <= {stats["name"] for stats in everything}


def test_with_asyncio(v2: Daemon) -> None:
    async def run() -> None:
        async with triton_aio.InferenceServerClient(v2.ready["http"]) as client:
            assert await client.is_server_live()
            assert await client.is_model_ready("iris")
            assert (await client.get_model_metadata("iris"))["name"] == "iris"
            assert (await client.get_model_repository_index())[0]["version"] == "1"
            await asyncio.gather(*(ask(client, number) for number in range(40)))
            with pytest.raises(InferenceServerException, match="Model not found: nobody"):
                await client.infer("nobody", [])

    async def ask(client: Any, number: int) -> None:
        array = np.full((1, 2000), number, np.float32)
        tensor = given("x", array, "FP32", binary=number % 2 == 0)
        packed = [None, "gzip", "deflate"][number % 3]
        result = await client.infer(
            "FP32",
            [tensor],
            outputs=[wanted("y", binary_data=number % 4 < 2)],
            request_compression_algorithm=packed,
            response_compression_algorithm=packed,
        )
        np.testing.assert_array_equal(result.as_numpy("y"), array)

    asyncio.run(run())
