"""`snoozeml.v1`, health and reflection over gRPC, the same whichever library serves."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

import models
from e2e import client as http
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.grpc_client import (
    CHECK,
    INFER,
    INFER_STREAM,
    MODEL_INFER,
    WATCH,
    Client,
    Refused,
    Reply,
    outputs,
    refused,
    request,
    tensor,
)
from snoozeml.wire.proto.oip_pb2 import ModelInferRequest
from snoozeml.wire.proto.snoozeml_pb2 import ModelInferResponse

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.2, 2.9, 4.3, 1.3]], np.float32)
SERVICES = {
    "snoozeml.v1.InferenceService",
    "inference.GRPCInferenceService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
}


@pytest.fixture
def client(over_grpc: Daemon) -> Iterator[Client]:
    with Client(over_grpc.ready["grpc"]) as client:
        yield client


def burn(milliseconds: int, **members: object) -> bytes:
    return request("burning", tensor("ms", np.array([[milliseconds]]), "INT64"), **members)


# Datatypes


def test_numbers_come_back_as_fp32(client: Client) -> None:
    answer = client.infer("iris", tensor("X", ROWS))
    assert {name: array.dtype for name, array in answer.items()} == {
        "label": np.float32,
        "probabilities": np.float32,
    }
    assert answer["label"].shape == (2,)
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_a_client_that_asks_for_it_gets_the_models_datatypes(client: Client) -> None:
    answer = client.infer("iris", tensor("X", ROWS), parameters={"datatypes": "native"})
    assert answer["label"].dtype == np.int64


@pytest.mark.parametrize("datatype", [name for name in models.DATATYPES if name != "BYTES"])
def test_every_model_takes_fp32_where_nothing_is_lost(client: Client, datatype: str) -> None:
    sent = np.array([[1, 0]], np.float32)
    (array,) = client.infer(datatype, tensor("x", sent)).values()
    np.testing.assert_array_equal(array, sent)


@pytest.mark.parametrize("datatype", [name for name in models.DATATYPES if name != "BYTES"])
def test_every_datatype_goes_there_and_back(client: Client, datatype: str) -> None:
    sent = tensor("x", np.array([[1, 0]]), datatype)
    (array,) = client.infer(datatype, sent, parameters={"datatypes": "native"}).values()
    assert array.tobytes() == sent.raw_data


def test_http_and_grpc_give_the_same_answer(over_grpc: Daemon, client: Client) -> None:
    reply = over_grpc.infer("iris", http.tensor("X", [2, 4], ROWS.ravel().tolist()))
    answer = client.infer("iris", tensor("X", ROWS))
    np.testing.assert_allclose(
        answer["probabilities"].ravel(), reply.outputs()["probabilities"], rtol=1e-6
    )


# What goes with an answer


def test_an_answer_tells_of_its_run_and_of_its_request_if_asked(client: Client) -> None:
    question = request("iris", tensor("X", ROWS))
    asked = [("x-request-id", "abc"), ("x-snooze-timing", "")]
    plain, reply = client.call(INFER, question), client.call(INFER, question, metadata=asked)
    assert isinstance(plain, Reply)
    assert not [name for name in plain.trailing if name.startswith("x-")]
    assert isinstance(reply, Reply)
    assert reply.trailing["x-snooze-batch-size"] == "2"
    assert float(reply.trailing["x-snooze-queue-ms"]) >= 0
    assert reply.trailing["x-request-id"] == "abc"
    message = ModelInferResponse.FromString(reply.body)
    assert (message.model_id, message.duration_ms > 0) == ("iris", True)


def test_a_failure_carries_its_code_and_an_id(client: Client) -> None:
    failure = client.call(INFER, request("absent"), metadata=[("x-request-id", "abc")])
    assert isinstance(failure, Refused)
    assert failure[:2] == (grpc.StatusCode.NOT_FOUND, "Model not found: absent")
    assert failure.trailing["x-snooze-code"] == "model_not_found"
    assert failure.trailing["x-request-id"] == "abc"


def test_text_beyond_ascii_survives_in_a_failure(client: Client) -> None:
    failure = client.call(INFER, request("grüß"))
    assert isinstance(failure, Refused)
    assert failure.message == "Model not found: grüß"


def test_who_does_not_want_to_wait_is_told_when_to_come_back(
    over_grpc: Daemon, client: Client
) -> None:
    over_grpc.control("iris", "unload")
    metadata = [("x-snooze-cold", "fail-fast")]
    failure = client.call(INFER, request("iris", tensor("X", ROWS)), metadata=metadata)
    assert isinstance(failure, Refused)
    assert failure.code is grpc.StatusCode.UNAVAILABLE
    assert "currently loading" in failure.message
    assert int(failure.trailing["retry-after"]) >= 1
    assert client.infer("iris", tensor("X", ROWS))


def test_the_request_that_wakes_a_model_is_told(over_grpc: Daemon, client: Client) -> None:
    over_grpc.control("iris", "unload")
    reply = client.call(INFER, request("iris", tensor("X", ROWS)))
    assert isinstance(reply, Reply)
    assert float(reply.trailing["x-snooze-cold-start-ms"]) > 0


# Deadlines


@pytest.mark.parametrize("way", ["call", "message", "oip"])
def test_the_earliest_deadline_wins(over_grpc: Daemon, client: Client, way: str) -> None:
    client.infer("burning", tensor("ms", np.array([[1]]), "INT64"))
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(client.call, INFER, burn(900))
        time.sleep(0.1)
        if way == "call":
            failure = client.call(INFER, burn(1, client_timeout_ms=20_000), timeout_s=0.2)
        elif way == "message":
            failure = client.call(INFER, burn(1, client_timeout_ms=200))
        else:
            tensors = [{"name": "ms", "datatype": "INT64", "shape": [1, 1]}]
            late = ModelInferRequest(
                model_name="burning", inputs=tensors, raw_input_contents=[bytes(8)]
            )
            late.parameters["timeout"].int64_param = 200_000
            failure = client.call(MODEL_INFER, late.SerializeToString())
        took_s = time.monotonic() - started
        assert isinstance(failure, Refused)
        assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert took_s < 0.8
        assert isinstance(long.result(), Reply)


def test_a_call_that_is_cancelled_leaves_the_queue(over_grpc: Daemon, client: Client) -> None:
    infer = client.channel.unary_unary(INFER)
    running = infer.future(burn(1000))
    eventually(lambda: over_grpc.model("burning")["state"] == "busy", "it runs")
    before = over_grpc.metrics()['snoozeml_requests_total{status="error"}']
    waiting = [infer.future(burn(300)) for _ in range(20)]
    time.sleep(0.5)  # for all of them to arrive
    for call in waiting:
        call.cancel()
    running.result()
    eventually(
        lambda: over_grpc.model("burning")["state"] == "ready", "nothing is left", within_s=2
    )
    after = over_grpc.metrics()['snoozeml_requests_total{status="error"}']
    assert after - before == 20


# Streams


def test_a_stream_answers_as_answers_come(client: Client) -> None:
    client.infer("iris", tensor("X", ROWS))  # or it would have to be woken first
    slow = burn(400, parameters={"id": "slow"})
    quick = request("iris", tensor("X", ROWS), parameters={"id": "quick"})
    wrong = request("absent", parameters={"id": "wrong"})
    messages = map(ModelInferResponse.FromString, client.stream(INFER_STREAM, [slow, quick, wrong]))
    found = {message.parameters["id"]: message for message in messages}
    assert list(found)[-1] == "slow"
    assert outputs(found["quick"].SerializeToString())["label"].shape == (2,)
    assert found["wrong"].error.code == "model_not_found"
    assert found["wrong"].error.message == "Model not found: absent"
    assert not found["slow"].HasField("error")


def test_a_stream_of_many_answers_each_once(client: Client) -> None:
    rows = [np.full((1, 2), n, np.float32) for n in range(1000)]
    bodies = [
        request("FP32", tensor("x", r), parameters={"id": str(n)}) for n, r in enumerate(rows)
    ]
    answers = [ModelInferResponse.FromString(m) for m in client.stream(INFER_STREAM, bodies)]
    assert sorted(int(answer.parameters["id"]) for answer in answers) == list(range(1000))
    for answer in answers:
        (array,) = outputs(answer.SerializeToString()).values()
        assert array.tolist() == [[float(answer.parameters["id"])] * 2]


def test_a_stream_without_messages_ends_well(client: Client) -> None:
    assert list(client.stream(INFER_STREAM, [])) == []


def test_a_stream_whose_client_leaves_withdraws_its_requests(
    over_grpc: Daemon, client: Client
) -> None:
    hold = threading.Event()

    def bodies() -> Iterator[bytes]:
        for _ in range(30):
            yield burn(200)
        hold.wait(10)

    call = client.channel.stream_stream(INFER_STREAM)(bodies())
    eventually(lambda: over_grpc.model("burning")["state"] == "busy", "it runs")
    call.cancel()
    hold.set()
    eventually(
        lambda: over_grpc.model("burning")["state"] == "ready", "nothing is left", within_s=5
    )


# Limits


def test_a_tensor_of_60_mib_goes_there_and_back(client: Client) -> None:
    sent = np.arange(15 * 2**20, dtype=np.float32).reshape(1, -1)
    (array,) = client.infer("FP32", tensor("x", sent)).values()
    np.testing.assert_array_equal(array, sent)


def test_a_message_over_the_limit_is_refused_with_the_limit(client: Client) -> None:
    for method in (INFER, MODEL_INFER):
        failure = client.call(method, bytes(64 * 2**20 + 1))
        assert isinstance(failure, Refused)
        assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "67108864" in failure.message
    assert client.infer("iris", tensor("X", ROWS))


def test_a_message_of_a_stream_over_the_limit_ends_it_with_the_limit(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        list(client.stream(INFER_STREAM, [bytes(64 * 2**20 + 1)]))
    failure = refused(raised.value)
    assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "67108864" in failure.message


# Health, reflection, and what there is not


@pytest.mark.parametrize("service", ["", "snoozeml.v1.InferenceService",
                                     "inference.GRPCInferenceService"])  # fmt: skip
def test_health_of_every_service(client: Client, service: str) -> None:
    reply = client.call(CHECK, HealthCheckRequest(service=service).SerializeToString())
    assert isinstance(reply, Reply)
    assert HealthCheckResponse.FromString(reply.body).status == HealthCheckResponse.SERVING


def test_health_of_a_service_that_there_is_not(client: Client) -> None:
    reply = client.call(CHECK, HealthCheckRequest(service="absent").SerializeToString())
    assert isinstance(reply, Refused)
    assert reply.code is grpc.StatusCode.NOT_FOUND


def test_health_can_be_watched(client: Client) -> None:
    watch = client.channel.unary_stream(WATCH)
    seen = watch(HealthCheckRequest(service="absent").SerializeToString(), timeout=10)
    unknown = HealthCheckResponse.FromString(next(seen)).status
    assert unknown == HealthCheckResponse.SERVICE_UNKNOWN
    seen.cancel()


def test_reflection_lists_every_service_and_its_messages(client: Client) -> None:
    database = ProtoReflectionDescriptorDatabase(client.channel)
    assert set(database.get_services()) == SERVICES
    for service in SERVICES:
        file = database.FindFileContainingSymbol(service)
        assert service.rpartition(".")[2] in [found.name for found in file.service]


@pytest.mark.parametrize("method", ["/snoozeml.v1.InferenceService/Absent", "/absent/Absent"])
def test_a_method_that_there_is_not(client: Client, method: str) -> None:
    reply = client.call(method, b"")
    assert isinstance(reply, Refused)
    assert reply.code is grpc.StatusCode.UNIMPLEMENTED
