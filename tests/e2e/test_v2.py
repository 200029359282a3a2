"""`/v2` byte by byte: its routes, its bodies, and what is wrong with them."""

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from e2e import processes
from e2e.client import Reply, infer_body, tensor
from e2e.conftest import Serve
from e2e.daemon import Daemon, path
from e2e.eventually import eventually

JSON_BYTES = "Inference-Header-Content-Length"
MEBIBYTE = 1024 * 1024
LIMIT = 64 * MEBIBYTE

ROWS = np.array([[5.1, 3.5, 1.4, 0.2]], np.float32)
GOOD = {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": ROWS.tolist()}
Body = tuple[bytes, dict[str, str]]


def url(model: str, what: str = "infer") -> str:
    return f"/v2/models/{model}/{what}"


def binary(name: str, array: Any, **more: Any) -> Body:
    """A request whose only tensor is binary FP32, and so shall be the answer; with its headers."""
    raw = array.tobytes()
    tensor = {
        "name": name,
        "shape": list(array.shape),
        "datatype": "FP32",
        "parameters": {"binary_data_size": len(raw)},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}, **more})
    headers = {"Content-Type": "application/octet-stream", JSON_BYTES: str(len(head))}
    return head.encode() + raw, headers


def parts(reply: Reply) -> tuple[Any, bytes]:
    """The JSON of an answer, and what follows it."""
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "application/octet-stream"
    json_bytes = int(reply.headers[JSON_BYTES.lower()])
    return json.loads(reply.body[:json_bytes]), reply.body[json_bytes:]


# Routes


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/iris/ready", {"name": "iris", "ready": True}),
        ("/v2/models/iris/versions/1/ready", {"name": "iris", "ready": True}),
    ],
)
def test_health(v2: Daemon, target: str, answer: Any) -> None:
    reply = v2.request("GET", target)
    assert (reply.status, reply.json()) == (200, answer)


@pytest.mark.parametrize("name", ["%C3%A9%20n", "e%CC%81%20n"])
def test_names_are_percent_encoded(v2: Daemon, name: str) -> None:
    body, headers = binary("x", ROWS)
    for target in (url(name), url(f"{name}/versions/1")):
        head, raw = parts(v2.request("POST", target, body, headers))
        assert head["model_name"] == "é n"
        assert raw == ROWS.tobytes()
    assert v2.request("GET", f"/v2/models/{name}").json()["name"] == "é n"
    assert v2.request("GET", url(name, "ready")).status == 200


@pytest.mark.parametrize(
    ("method", "target", "status", "words"),
    [
        ("GET", "/v2/", 404, "there is nothing"),
        ("GET", "/v2/nothing", 404, "there is nothing"),
        ("POST", "/v2", 405, "GET"),
        ("GET", url("iris"), 405, "POST"),
        ("POST", url("iris", "ready"), 405, "GET"),
        ("GET", "/v2/repository/index", 405, "POST"),
        ("GET", url("nobody", "ready"), 404, "Model not found: nobody"),
        ("GET", "/v2/models/nobody", 404, "Model not found: nobody"),
        ("GET", url("nobody", "config"), 404, "Model not found: nobody"),
        ("GET", url("nobody", "stats"), 404, "Model not found: nobody"),
        ("POST", url("nobody"), 404, "Model not found: nobody"),
        ("GET", "/v2/models/iris/versions/2", 404, "version '2'; there is only 1"),
        ("POST", url("iris/versions/2"), 404, "version '2'; there is only 1"),
        ("GET", url("iris", "ready?strict=maybe"), 400, "strict must be"),
        ("GET", "/v2/systemsharedmemory/status", 501, "shared memory"),
        ("POST", "/v2/cudasharedmemory/region/r/register", 501, "shared memory"),
        ("POST", "/v2/trace/setting", 501, "traces"),
        ("GET", url("iris", "trace/setting"), 501, "traces"),
        ("GET", "/v2/logging", 501, "log"),
        ("POST", url("iris", "generate"), 501, "generation"),
        ("POST", url("iris", "generate_stream"), 501, "generation"),
        ("POST", url("iris", "infer_stream"), 501, "gRPC"),
        ("POST", "/v2/repository/mine/index", 501, "one repository"),
    ],
)
def test_what_is_not_there(v2: Daemon, method: str, target: str, status: int, words: str) -> None:
    reply = v2.request(method, target, b"{}" if method == "POST" else None)
    assert reply.status == status, reply
    assert words in reply.json()["error"]


def test_metadata_of_a_model_that_was_never_prepared_wakes_nothing(
    serve: Serve, models_dir: Path
) -> None:
    models.linear_model(models_dir / "iris.onnx", seed=90210)  # no other test has prepared it
    daemon = serve()
    reply = daemon.request("GET", "/v2/models/iris")
    assert reply.json()["inputs"] == [{"name": "X", "datatype": "FP32", "shape": [-1, 4]}]
    assert daemon.request("GET", url("iris", "config")).status == 200
    assert daemon.request("GET", url("iris", "ready")).status == 200
    assert daemon.request("GET", url("iris", "ready?strict=1")).status == 400
    assert daemon.model("iris")["loads"] == 0
    assert daemon.workers() == []


def test_strict_readiness_waits_for_pinned_models(serve: Serve, models_dir: Path) -> None:
    models.linear_model(models_dir / "iris.onnx")
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve("[models.iris]\npinned = true\n")

    def status(target: str) -> int:
        return daemon.request("GET", target).status

    assert status("/v2/health/ready") == 200
    eventually(lambda: status("/v2/health/ready?strict=1") == 200, "the pinned model is warm")
    assert status(url("iris", "ready?strict=1")) == 200
    assert status(url("echo", "ready?strict=1")) == 400


def test_the_repository_index_may_ask_for_ready_models_only(v2: Daemon) -> None:
    for body in (None, b"", b"{}", b'{"ready": true}'):
        reply = v2.request("POST", "/v2/repository/index", body)
        assert {"name": "iris", "version": "1", "state": "READY", "reason": ""} in reply.json()
    for body in (b"[]", b"{", b'{"ready": 7}', b"\xff", b"[" * 100_000):
        assert v2.request("POST", "/v2/repository/index", body).status == 400


def test_a_model_that_cannot_be_loaded_is_not_ready(serve: Serve, models_dir: Path) -> None:
    (models_dir / "broken.onnx").write_bytes(b"no model")
    daemon = serve()
    assert daemon.request("GET", url("broken", "ready")).status == 200  # nobody has tried yet
    assert daemon.request("POST", "/v2/repository/models/broken/load").status == 503
    assert daemon.request("GET", url("broken", "ready")).status == 400
    (entry,) = daemon.request("POST", "/v2/repository/index").json()
    assert entry["state"] == "UNAVAILABLE"
    assert "broken" in entry["reason"]
    ready = daemon.request("POST", "/v2/repository/index", b'{"ready": true}')
    assert ready.json() == []


# Bodies


def test_a_binary_request_and_its_answer(v2: Daemon) -> None:
    body, headers = binary("X", ROWS, id="an id")
    reply = v2.request("POST", url("iris"), body, headers)
    head, raw = parts(reply)
    assert head["id"] == "an id"
    label, probabilities = head["outputs"]
    assert label["parameters"] == {"binary_data_size": 8}
    assert probabilities["parameters"] == {"binary_data_size": 12}
    assert len(raw) == 20
    assert reply.headers["x-snooze-batch-size"] == "1"
    plain = v2.request("POST", url("iris"), json.dumps({"inputs": [GOOD]}).encode())
    assert plain.outputs()["label"] == np.frombuffer(raw[:8], np.int64).tolist()
    assert JSON_BYTES.lower() not in plain.headers


def test_a_raw_body_is_the_only_tensor(v2: Daemon) -> None:
    headers = {"Content-Type": "application/octet-stream", JSON_BYTES: "0"}
    two_rows = ROWS.tobytes() * 2
    head, raw = parts(v2.request("POST", url("iris"), two_rows, headers))
    assert [output["shape"] for output in head["outputs"]] == [[2], [2, 3]]
    assert len(raw) == 2 * 8 + 2 * 12
    reply = v2.request("POST", url("text"), "é".encode(), headers)
    assert parts(reply)[1] == b"\x03\0\0\0" + "é!".encode()


def test_sixty_mebibytes_pass_in_binary(v2: Daemon) -> None:
    array = np.arange(15 * MEBIBYTE, dtype=np.float32).reshape(1, -1)
    body, headers = binary("x", array)
    _, raw = parts(v2.request("POST", url("FP32"), body, headers))
    assert raw == array.tobytes()


def test_a_body_over_the_limit_is_refused_with_the_limit(v2: Daemon) -> None:
    array = np.zeros((1, LIMIT // 4), np.float32)
    body, headers = binary("x", array)
    refusals = [
        v2.request("POST", url("FP32"), body[:1000], {**headers, "Content-Length": str(len(body))}),
        v2.request("POST", url("FP32"), gzip.compress(body, 1), {**headers, **encoded("gzip")}),
        v2.request("POST", path("FP32", "infer"), zlib.compress(body), encoded("deflate")),
        v2.request("POST", "/v2/repository/index", gzip.compress(body, 1), encoded("gzip")),
    ]
    for reply in refusals:
        assert (reply.status, reply.json()["code"]) == (413, "payload_too_large"), reply
        assert str(LIMIT) in reply.json()["error"]


def encoded(encoding: str) -> dict[str, str]:
    return {"Content-Encoding": encoding}


@pytest.mark.parametrize("target", [url("FP32"), path("FP32", "infer"), "/v2/repository/index"])
def test_other_encodings_are_refused_by_name(v2: Daemon, target: str) -> None:
    reply = v2.request("POST", target, b"{}", encoded("br"))
    assert (reply.status, reply.json()["code"]) == (415, "unsupported_media_type"), reply
    assert "gzip or deflate or none, not br" in reply.json()["error"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bodies_are_taken_by_both_dialects(v2: Daemon, encoding: str) -> None:
    compress = gzip.compress if encoding == "gzip" else zlib.compress
    body, headers = binary("X", ROWS)
    reply = v2.request("POST", url("iris"), compress(body), {**headers, **encoded(encoding)})
    assert parts(reply)[0]["model_name"] == "iris"
    plain = infer_body(tensor("X", [1, 4], ROWS.tolist()))
    reply = v2.request("POST", path("iris", "infer"), compress(plain), encoded(encoding))
    assert reply.status == 200


def test_answers_are_compressed_for_those_who_want_that(v2: Daemon) -> None:
    body, headers = binary("x", np.zeros((1, 10_000), np.float32))
    inflaters: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.decompress,
        "deflate": zlib.decompress,
    }
    for encoding, inflate in inflaters.items():
        reply = v2.request("POST", url("FP32"), body, {**headers, "Accept-Encoding": encoding})
        assert reply.headers["content-encoding"] == encoding
        assert len(reply.body) < 1000
        head, raw = parts(reply._replace(body=inflate(reply.body)))
        assert head["outputs"][0]["shape"] == [1, 10_000]
        assert raw == bytes(40_000)
    noise = np.frombuffer(np.random.default_rng(0).bytes(160_000), np.float32).reshape(1, -1)
    body, headers = binary("x", noise)
    reply = v2.request("POST", url("FP32"), body, {**headers, "Accept-Encoding": "gzip"})
    assert "content-encoding" not in reply.headers  # it would hardly have been smaller
    assert parts(reply)[1] == noise.tobytes()


# What is wrong


def lying(body: Body, **headers: str) -> Body:
    return body[0], {**body[1], **{name.replace("_", "-"): text for name, text in headers.items()}}


def wrong_binary(**changes: Any) -> Body:
    """A binary request for iris in which the tensor's description is changed."""
    raw = ROWS.tobytes()
    description = {
        "name": "X",
        "shape": [1, 4],
        "datatype": "FP32",
        "parameters": {"binary_data_size": len(raw)},
    }
    head = json.dumps({"inputs": [{**description, **changes}]})
    return head.encode() + raw, {JSON_BYTES: str(len(head))}


def size(size_bytes: Any) -> Mapping[str, Any]:
    return {"binary_data_size": size_bytes}


GOOD_BINARY = binary("X", ROWS)
WRONG: dict[str, tuple[Body, str]] = {
    "no JSON": ((b"{", {}), "JSON"),
    "another object": ((b"[]", {}), "inputs"),
    "not UTF-8": ((b'{"id": "\xff"}', {}), "UTF-8"),
    "a deep nest": ((b'{"mine":' + b"[" * 50_000, {}), "JSON"),
    "nothing": ((b"", {}), "JSON"),
    "a header beyond the body": (lying(GOOD_BINARY, **{JSON_BYTES: "100000"}), JSON_BYTES),
    "a negative header": (lying(GOOD_BINARY, **{JSON_BYTES: "-1"}), JSON_BYTES),
    "a header of text": (lying(GOOD_BINARY, **{JSON_BYTES: "all"}), JSON_BYTES),
    "an endless header": (lying(GOOD_BINARY, **{JSON_BYTES: "9" * 5000}), JSON_BYTES),
    "a header of 10 bytes": (lying(GOOD_BINARY, **{JSON_BYTES: "10"}), "JSON"),
    "a raw body of 5 bytes": ((b"12345", {JSON_BYTES: "0"}), "shape mismatch"),
    "more binary than there is": (wrong_binary(parameters=size(17)), "only 16 bytes"),
    "binary that nobody has": (wrong_binary(parameters=size(12)), "4 bytes follow"),
    "a negative size": (wrong_binary(parameters=size(-16)), "binary_data_size"),
    "a size beyond all": (wrong_binary(parameters=size(2**70)), "binary_data_size"),
    "another shape": (wrong_binary(shape=[2, 4]), "shape mismatch"),
    "a negative shape": (wrong_binary(shape=[-1, 4]), "never negative"),
    "a shape that overflows": (wrong_binary(shape=[2**62, 4]), "shape mismatch"),
    "a shape beyond integers": (wrong_binary(shape=[2**80, 4]), "<= 9223372036854775807"),
    "another datatype": (wrong_binary(datatype="FP64"), "shape mismatch"),
    "text": (wrong_binary(datatype="BYTES"), "wants FP32"),
    "an unknown datatype": (wrong_binary(datatype="FP8"), "unknown datatype"),
    "an unknown name": (wrong_binary(name="Z"), "unknown input"),
    "a broken gzip": ((b"{}", encoded("gzip")), "gzip"),
    "a torn gzip": ((gzip.compress(GOOD_BINARY[0])[:40], encoded("gzip")), "too early"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_gets_a_clean_400(v2: Daemon, what: str) -> None:
    (body, headers), words = WRONG[what]
    reply = v2.request("POST", url("iris"), body, headers)
    assert reply.status == 400, reply
    assert words in reply.json()["error"]


def test_media_types_that_are_neither(v2: Daemon) -> None:
    for headers in ({"Content-Type": "text/plain"}, encoded("br")):
        reply = v2.request("POST", url("iris"), b"{}", headers)
        assert reply.status == 415, reply


def test_thousands_of_wrong_requests_leave_nothing_behind(v2: Daemon) -> None:
    def storm(rounds: int) -> None:
        for _ in range(rounds):
            with v2.connect() as connection:
                for (body, headers), _ in WRONG.values():
                    assert connection.request("POST", url("iris"), body, headers).status == 400

    def held() -> tuple[int, int]:
        pids = v2.tree()
        files = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
        return files, sum(processes.private_bytes(pid) for pid in pids)

    storm(20)
    files, memory_bytes = held()
    storm(60)
    eventually(lambda: held()[0] <= files, "all files are closed")
    assert held()[1] - memory_bytes < 4 * MEBIBYTE


def test_what_large_bodies_took_is_given_back_when_the_model_sleeps(
    serve: Serve, models_dir: Path
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    body, headers = binary("x", np.zeros((1, 5 * MEBIBYTE), np.float32))
    packed, packed_headers = gzip.compress(body, 1), {**headers, **encoded("gzip")}

    def ask(number: int) -> None:
        request = (packed, packed_headers) if number % 2 else (body, headers)
        parts(daemon.request("POST", url("echo"), *request))

    daemon.control("echo", "load")
    daemon.control("echo", "unload")
    before = processes.private_bytes(daemon.pid)
    with ThreadPoolExecutor(4) as clients:
        list(clients.map(ask, range(12)))
    daemon.control("echo", "unload")
    assert processes.private_bytes(daemon.pid) - before < 8 * MEBIBYTE
