"""What the daemon reads of a request, and how failures end a call."""

from typing import Any
from urllib.parse import quote

import pytest

from snoozeml.errors import BY_CODE, InvalidInput, ModelFailed, ModelNotFound, Overloaded
from snoozeml.fronts.grpc.calls import Call
from snoozeml.fronts.grpc.heads import Head, head_of_oip, head_of_v1
from snoozeml.fronts.grpc.status import STATUS, failure_of
from snoozeml.wire.proto import oip_pb2, snoozeml_pb2


def v1(**members: Any) -> bytes:
    return bytes(snoozeml_pb2.ModelInferRequest(**members).SerializeToString())


def oip(parameters: dict[str, dict[str, Any]] | None = None, **members: Any) -> bytes:
    message = oip_pb2.ModelInferRequest(**members)
    for name, value in (parameters or {}).items():
        message.parameters[name].CopyFrom(oip_pb2.InferParameter(**value))
    return bytes(message.SerializeToString())


def test_the_head_of_a_v1_request() -> None:
    body = v1(
        inputs=[{"name": "x", "raw_data": bytes(1000)}],
        model_id="grüß",
        client_timeout_ms=1500,
        parameters={"a": "b", "id": "7"},
    )
    assert head_of_v1(body) == Head("grüß", "", "7", 1.5)
    assert head_of_v1(v1(model_id="m")) == Head("m", "", "", None)


def test_the_head_of_an_oip_request() -> None:
    parameters: dict[str, dict[str, Any]] = {
        "timeout": {"int64_param": 2500},
        "priority": {"uint64_param": 3},
        "a": {"string_param": "timeout"},
    }
    body = oip(parameters, model_name="m", model_version="1", id="7", raw_input_contents=[b"x"])
    assert head_of_oip(body) == Head("m", "1", "7", 0.0025, 3)
    assert head_of_oip(oip({"timeout": {"uint64_param": 10**6}}, model_name="m")).timeout_s == 1
    assert head_of_oip(oip({"timeout": {"int64_param": 0}}, model_name="m")).timeout_s is None


@pytest.mark.parametrize(
    "value",
    [
        {"string_param": "high"},
        {"bool_param": True},
        {"double_param": 1.0},
        {"int64_param": -1},
        {},
    ],
)
def test_what_is_no_priority_is_left_to_the_worker(value: dict[str, Any]) -> None:
    assert head_of_oip(oip({"priority": value}, model_name="m")).priority == 0


def test_the_last_of_several_values_counts_as_it_does_for_every_reader() -> None:
    assert head_of_v1(v1(model_id="a") + v1(model_id="b")).model_id == "b"


def test_a_name_means_the_same_however_it_was_typed() -> None:
    assert head_of_oip(oip(model_name="gru\u0308n")).model_id == "gr\u00fcn"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (v1(), "model_id must name a model"),
        (v1(model_id="m", client_timeout_ms=0), "client_timeout_ms must be above 0"),
        (v1(model_id="m", client_timeout_ms=2**63), "up to 86400000"),
        (b"\x0a\x05ab", "not valid protobuf"),
        (b"\x0a\x01\xff", "UTF-8"),
        (b"\x08\x01", "text is wanted"),
        (b"\x0a\x01m\x1a\x01x", "number is wanted"),
        (b'{"inputs": []}', "not valid protobuf"),
    ],
)
def test_a_v1_head_that_is_wrong_is_named(body: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        head_of_v1(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (oip(), "model_name must name a model"),
        (oip({"timeout": {"string_param": "1s"}}, model_name="m"), "whole number of microseconds"),
        (oip({"timeout": {"int64_param": -1}}, model_name="m"), "timeout .* above 0 .* not -1$"),
        (b"\x0a\x01m\x22\x0a\x0a\x07timeout", "not valid protobuf"),
    ],
)
def test_an_oip_head_that_is_wrong_is_named(body: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        head_of_oip(body)


def test_every_failure_has_a_status() -> None:
    assert STATUS.keys() == BY_CODE.keys()


CALL = Call([("x-request-id", "abc"), ("bin-bin", b"\xff")], None)


def test_a_failure_carries_its_code_and_the_clients_id() -> None:
    failure = failure_of(ModelNotFound.named("m"), CALL)
    assert failure.message == "Model not found: m"
    assert dict(failure.trailing) == {"x-request-id": "abc", "x-snooze-code": "model_not_found"}


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Overloaded("full", retry_after_s=0.2), "1"), (ModelFailed("x", retry_after_s=3.2), "4")],
)
def test_a_failure_says_when_to_come_again(error: Exception, seconds: str) -> None:
    assert dict(failure_of(error, CALL).trailing)["retry-after"] == seconds


def test_a_failure_without_a_name_is_told_by_its_id_only() -> None:
    failure = failure_of(KeyError("secret"), CALL)
    assert failure.message == "internal error; see the log: abc"
    assert failure.code == STATUS["internal"]


def as_a_header(message: str) -> str:
    """As gRPC's specification wants `grpc-message` to be written."""
    as_it_is = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
    return quote(message, safe=as_it_is)


@pytest.mark.parametrize("text", ["a", "%", "\n", "é", "字", "\U0001f600", "a%é字"])
@pytest.mark.parametrize("length", [1, 340, 4000, 10**6])
def test_a_message_fits_into_what_clients_read_of_trailers(text: str, length: int) -> None:
    # The soft limit of most is 8 KiB: beyond, they see another failure, or none by its name.
    given = InvalidInput("It is: " + text * length).message
    message = failure_of(InvalidInput(given), CALL).message
    assert len(as_a_header(message)) <= 4096
    if message != given:
        assert message.endswith("…")
        assert given.startswith(message[:-1])
        assert len(as_a_header(message)) > 4096 - 24


@pytest.mark.parametrize("given", ["", "x" * 129, "a\tb"])
def test_an_id_that_cannot_be_used_is_replaced(given: str) -> None:
    trailing = dict(failure_of(ModelNotFound("x"), Call([("x-request-id", given)], None)).trailing)
    assert trailing["x-request-id"] != given
