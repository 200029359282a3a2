"""tritonclient, which knows nothing of us, over both libraries, blocking and with asyncio."""

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as blocking
import tritonclient.grpc.aio as aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

import models
from e2e.daemon import Daemon

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.2, 2.9, 4.3, 1.3]], np.float32)
VALUES = np.array([[1, 0], [0, 1]])


@pytest.fixture
def triton(over_grpc: Daemon) -> Iterator[Any]:
    client = blocking.InferenceServerClient(over_grpc.ready["grpc"])
    yield client
    client.close()


def given(name: str, array: Any, datatype: str) -> Any:
    tensor = blocking.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


IRIS = given("X", ROWS, "FP32")


def array_of(datatype: str) -> Any:
    if datatype == "BYTES":
        return np.array([["a", "grüß"], ["", "x" * 300]], object)
    kinds = {"BOOL": np.bool_, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
    return VALUES.astype(kinds.get(datatype) or np.dtype(datatype.lower()))


# What the server says of itself


def test_live_and_ready(triton: Any) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("iris")
    assert triton.is_model_ready("iris", "1")
    assert not triton.is_model_ready("iris", "2")
    assert not triton.is_model_ready("absent")


def test_what_the_server_is(triton: Any) -> None:
    server = triton.get_server_metadata()
    assert server.name == "snoozeml"
    promised = {"model_repository(unload_dependents)", "schedule_policy", "statistics"}
    assert promised <= set(server.extensions)


def test_what_a_model_takes_and_gives(triton: Any) -> None:
    model = triton.get_model_metadata("iris")
    assert (model.name, list(model.versions), model.platform) == ("iris", ["1"], "snoozeml_onnx")
    assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [("X", "FP32", [-1, 4])]
    assert [(t.name, t.datatype, list(t.shape)) for t in model.outputs] == [
        ("label", "INT64", [-1]),
        ("probabilities", "FP32", [-1, 3]),
    ]
    assert list(triton.get_model_metadata("number").inputs[0].shape) == []


def test_how_a_model_is_configured(triton: Any) -> None:
    config = triton.get_model_config("iris").config
    assert (config.name, config.max_batch_size) == ("iris", 16)
    assert [(t.name, t.data_type, list(t.dims)) for t in config.input] == [("X", 11, [4])]
    assert [list(t.dims) for t in config.output] == [[], [3]]
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching"
    alone = triton.get_model_config("number").config
    assert alone.max_batch_size == 0
    assert alone.WhichOneof("scheduling_choice") is None


def test_what_a_model_takes_is_told_without_waking_it(triton: Any, over_grpc: Daemon) -> None:
    over_grpc.control("iris", "unload")
    loads = over_grpc.model("iris")["loads"]
    assert triton.get_model_metadata("iris").inputs
    assert triton.get_model_config("iris").config.input
    assert over_grpc.model("iris")["state"] == "idle"
    assert over_grpc.model("iris")["loads"] == loads


# Inference


@pytest.mark.parametrize("datatype", models.DATATYPES)
def test_every_datatype_goes_there_and_back(triton: Any, datatype: str) -> None:
    array = array_of(datatype)
    result = triton.infer(datatype, [given("x", array, datatype)]).as_numpy("y")
    if datatype == "BYTES":
        result = np.vectorize(bytes.decode, otypes=[object])(result)
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("datatype", [name for name in models.DATATYPES if name != "FP16"])
def test_typed_contents_go_there_and_back(triton: Any, datatype: str) -> None:
    """tritonclient sends raw data only, so the message is made by hand."""
    array = array_of(datatype)
    field = {
        "BOOL": "bool", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int64",
        "UINT8": "uint", "UINT16": "uint", "UINT32": "uint", "UINT64": "uint64",
        "FP32": "fp32", "FP64": "fp64", "BYTES": "bytes",
    }[datatype]  # fmt: skip
    values = [v.encode() if datatype == "BYTES" else v for v in array.ravel().tolist()]
    request = service_pb2.ModelInferRequest(model_name=datatype)
    tensor = request.inputs.add(name="x", datatype=datatype, shape=array.shape)
    getattr(tensor.contents, f"{field}_contents").extend(values)
    response = triton._client_stub.ModelInfer(request)
    assert list(getattr(response.outputs[0].contents, f"{field}_contents")) == values


def test_an_answer_carries_the_requests_id_and_its_outputs(triton: Any) -> None:
    result = triton.infer("iris", [IRIS], request_id="7")
    assert result.get_response().id == "7"
    assert result.get_response().model_version == "1"
    assert result.as_numpy("label").shape == (2,)
    assert result.as_numpy("probabilities").shape == (2, 3)


def test_only_the_outputs_asked_for_come(triton: Any) -> None:
    wanted = [blocking.InferRequestedOutput("probabilities")]
    result = triton.infer("iris", [IRIS], outputs=wanted, model_version="1")
    assert [output.name for output in result.get_response().outputs] == ["probabilities"]


def test_classification(triton: Any) -> None:
    wanted = [blocking.InferRequestedOutput("probabilities", class_count=2)]
    found = triton.infer("iris", [IRIS], outputs=wanted).as_numpy("probabilities")
    plain = triton.infer("iris", [IRIS]).as_numpy("probabilities")
    assert found.shape == (2, 2)
    for row, values in zip(found, plain, strict=True):
        best = np.argsort(-values)[:2]
        assert [text.decode() for text in row] == [f"{values[i]:f}:{i}" for i in best]


def test_strings(triton: Any) -> None:
    texts = np.array(["grüß", ""], object)
    found = triton.infer("text", [given("text", texts, "BYTES")]).as_numpy("shout")
    assert [text.decode() for text in found] == ["grüß!", "!"]


def test_parameters_and_priority_are_accepted(triton: Any) -> None:
    triton.infer("iris", [IRIS], priority=1, timeout=10_000_000, parameters={"mine": "x"})


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        ({"model_name": "absent"}, "NOT_FOUND", "Model not found: absent"),
        ({"model_version": "2"}, "NOT_FOUND", "version '2'; there is only 1"),
        ({"sequence_id": 5}, "INVALID_ARGUMENT", "sequences are not supported"),
        ({"outputs": [blocking.InferRequestedOutput("z")]}, "INVALID_ARGUMENT", "output 'z'"),
        ({"inputs": []}, "INVALID_ARGUMENT", "missing in inputs: 'X'"),
    ],
)
def test_what_is_wrong_is_named(
    triton: Any, arguments: dict[str, Any], status: str, why: str
) -> None:
    with pytest.raises(InferenceServerException) as raised:
        triton.infer(**{"model_name": "iris", "inputs": [IRIS], **arguments})
    assert raised.value.status() == f"StatusCode.{status}"
    assert why in raised.value.message()


def test_a_stream_answers_each_request_by_its_id(triton: Any) -> None:
    got: queue.Queue[tuple[Any, Any]] = queue.Queue()
    triton.start_stream(lambda result, error: got.put((result, error)))
    for number in range(20):
        triton.async_stream_infer("iris", [IRIS], request_id=str(number))
    triton.async_stream_infer("absent", [IRIS], request_id="wrong")
    answers = [got.get(timeout=10) for _ in range(21)]
    triton.stop_stream()
    ids = sorted(int(result.get_response().id) for result, error in answers if error is None)
    assert ids == list(range(20))
    (error,) = [error for _, error in answers if error is not None]
    assert error.message() == "Model not found: absent"


# Control


def test_models_are_listed_loaded_and_unloaded(triton: Any, over_grpc: Daemon) -> None:
    index = {model.name: model for model in triton.get_model_repository_index().models}
    assert (index["iris"].version, index["iris"].state) == ("1", "READY")
    assert {*models.DATATYPES, "iris", "text", "number", "burning"} == index.keys()
    triton.load_model("iris")
    assert over_grpc.model("iris")["state"] == "ready"
    triton.unload_model("iris", unload_dependents=True)
    assert over_grpc.model("iris")["state"] == "idle"
    assert triton.is_model_ready("iris")  # it takes requests, and wakes for them


def test_a_load_that_would_change_the_configuration_is_refused(triton: Any) -> None:
    with pytest.raises(InferenceServerException, match="parameter 'config' is not supported"):
        triton.load_model("iris", config="{}")
    with pytest.raises(InferenceServerException, match="Model not found: absent"):
        triton.load_model("absent")


def test_statistics_count_rows_and_runs(triton: Any) -> None:
    before = triton.get_inference_statistics("iris").model_stats[0]
    for _ in range(3):
        triton.infer("iris", [IRIS])
    with pytest.raises(InferenceServerException):
        triton.infer("iris", [given("X", ROWS[:, :3].copy(), "FP32")])
    (after,) = triton.get_inference_statistics("iris", "1").model_stats
    assert after.inference_count - before.inference_count == 6
    assert after.execution_count - before.execution_count == 3
    assert after.inference_stats.success.count - before.inference_stats.success.count == 3
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    assert after.inference_stats.queue.ns > before.inference_stats.queue.ns
    assert after.inference_stats.compute_infer.ns > before.inference_stats.compute_infer.ns
    assert after.last_inference > before.last_inference
    runs_of_two = {stats.batch_size: stats.compute_infer.count for stats in after.batch_stats}[2]
    assert runs_of_two >= 3
    assert len(triton.get_inference_statistics().model_stats) > 5


@pytest.mark.parametrize(
    "ask",
    [
        lambda triton: triton.get_system_shared_memory_status(),
        lambda triton: triton.register_system_shared_memory("a", "/a", 8),
        lambda triton: triton.get_cuda_shared_memory_status(),
        lambda triton: triton.get_trace_settings(),
        lambda triton: triton.get_log_settings(),
    ],
)
def test_what_is_not_served_says_so(triton: Any, ask: Any) -> None:
    with pytest.raises(InferenceServerException, match="is not served") as raised:
        ask(triton)
    assert raised.value.status() == "StatusCode.UNIMPLEMENTED"


# The same with asyncio


def test_with_asyncio(over_grpc: Daemon) -> None:
    asyncio.run(_ask_everything(over_grpc.ready["grpc"]))


async def _ask_everything(address: str) -> None:
    async with aio.InferenceServerClient(address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("iris")
        assert (await client.get_model_metadata("iris")).name == "iris"
        assert (await client.get_model_config("iris")).config.max_batch_size == 16
        await client.load_model("iris")
        result = await client.infer("iris", [IRIS], request_id="a")
        assert result.as_numpy("probabilities").shape == (2, 3)
        for datatype in models.DATATYPES:
            array = array_of(datatype)
            answer = await client.infer(datatype, [given("x", array, datatype)])
            assert answer.as_numpy("y").shape == array.shape
        assert (await client.get_inference_statistics("iris")).model_stats
        assert (await client.get_model_repository_index()).models
        await client.unload_model("iris")
        with pytest.raises(InferenceServerException, match="Model not found"):
            await client.infer("absent", [IRIS])


def test_streams_with_asyncio(over_grpc: Daemon) -> None:
    ids = asyncio.run(_stream_ten(over_grpc.ready["grpc"]))
    assert sorted(ids) == list(range(10))


async def _stream_ten(address: str) -> list[int]:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(10):
            yield {"model_name": "iris", "inputs": [IRIS], "request_id": str(number)}

    async with aio.InferenceServerClient(address) as client:
        answers = [answer async for answer in client.stream_infer(requests())]
    return [int(result.get_response().id) for result, _ in answers]
