"""What is wrong is refused with its status, its code, and words that say what would be right.

The tables have one entry per way to be wrong. When all of it has been sent, the daemon still
answers, and no worker has died of it.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from e2e.client import Reply, infer_body, request_bytes, tensor
from e2e.daemon import Daemon

ROW = [5.1, 3.5, 1.4, 0.2]
GOOD = tensor("X", [1, 4], ROW)


class Case(NamedTuple):
    """One body for one model; `words` must all stand in the message."""

    what: str
    body: bytes
    words: tuple[str, ...]
    code: str = "invalid_input"
    model: str = "iris"
    status: int = 400


def text(what: str, body: str | bytes, *words: str) -> Case:
    """A body that is wrong as JSON, or as a request."""
    return Case(what, body if isinstance(body, bytes) else body.encode(), words)


def members(what: str, *words: str, **changes: Any) -> Case:
    """A good request with some members of its body changed; `...` takes one away."""
    body = {"inputs": [GOOD], **changes}
    return text(what, json.dumps({k: v for k, v in body.items() if v is not ...}), *words)


def x(what: str, *words: str, **changes: Any) -> Case:
    """A good request for iris with its only tensor changed; `...` takes a member away."""
    changed = {k: v for k, v in {**GOOD, **changes}.items() if v is not ...}
    return text(what, infer_body(changed), *words)


def shape(what: str, model: str, *words: str, inputs: list[dict[str, Any]]) -> Case:
    return Case(what, infer_body(*inputs), ("shape mismatch", *words), "shape_mismatch", model)


def value(what: str, model: str, data: str, *words: str) -> Case:
    """One value, written in JSON, for the only input `x` or `text` of a model."""
    name, wanted = ("text", "[1]") if model == "text" else ("x", "[1, 1]")
    body = f'{{"inputs":[{{"name":"{name}","shape":{wanted},"data":[{data}]}}]}}'
    return Case(what, body.encode(), (name, *words), model=model)


DEEP = "[" * 100_000 + "]" * 100_000

BODIES = [
    # Not JSON, or not a request
    text("nothing", "", "JSON"),
    text("blanks", "   ", "JSON"),
    text("cut off", '{"inputs":[{"name":"X"', "JSON"),
    text("more after the end", infer_body(GOOD) + b"{}", "JSON"),
    text("single quotes", "{'inputs': []}", "JSON"),
    text("a comma too many", '{"inputs":[],}', "JSON"),
    text("a comment", '{"inputs":[] /* none */}', "JSON"),
    text("not UTF-8", b'{"inputs":[{"name":"\xff","shape":[1,4],"data":[1,2,3,4]}]}', "UTF-8"),
    text("UTF-16", infer_body(GOOD).decode().encode("utf-16"), "JSON"),
    text("a control character in a string", '{"inputs":[{"name":"\x01"}]}', "JSON"),
    text("half a surrogate pair", '{"inputs":[{"name":"\\ud800"}]}', "JSON"),
    text("protobuf", b"\x0a\x04iris\x12\x0a", "JSON"),
    text("a list", "[]", "object"),
    text("null", "null", "object"),
    text("a number", "42", "object"),
    text("a string", '"inputs"', "object"),
    text("deep data", '{"inputs":[{"name":"X","shape":[1,4],"data":' + DEEP + "}]}"),
    text("deep parameters", '{"inputs":[],"parameters":{"a":' + DEEP + "}}"),
    # inputs
    members("no inputs", "inputs", inputs=...),
    members("inputs are null", "inputs", inputs=None),
    members("inputs are an object", "inputs", inputs=GOOD),
    members("inputs hold no object", "inputs", "object", inputs=[1]),
    members("an input is missing", "X", inputs=[]),
    members("an input comes twice", "X", inputs=[GOOD, GOOD]),
    members("an input too many", "Z", "X", inputs=[GOOD, tensor("Z", [1], [1])]),
    # name
    x("no name", "name", name=...),
    x("a name that is a number", "name", name=7),
    x("an unknown name", "Z", "X", name="Z"),
    x("a name in the wrong case", "'x'", "X", name="x"),
    x("an empty name", "X", name=""),
    x("a name with a NUL", "X", name="X\0"),
    # shape
    x("no shape", "shape", shape=...),
    x("a shape of null", "shape", shape=None),
    x("a shape that is text", "shape", shape="1x4"),
    x("a shape that is a number", "shape", shape=4),
    x("a shape with a fraction", "shape", shape=[1.5, 4]),
    x("a shape with text", "shape", shape=["1", 4]),
    x("a shape with a bool", "shape", shape=[True, 4]),
    x("a negative dimension", "shape", shape=[-1, 4]),
    x("a dimension beyond 64 bits", "shape", shape=[2**64, 4]),
    shape("a dimension beyond all memory", "iris", "X", inputs=[tensor("X", [2**40, 4], ROW)]),
    shape("dimensions that overflow", "iris", "X", inputs=[tensor("X", [2**62, 4], ROW)]),
    shape("a rank too low", "iris", "X", "[-1, 4]", "[4]", inputs=[tensor("X", [4], ROW)]),
    shape("a rank too high", "iris", "X", "[-1, 4]", inputs=[tensor("X", [1, 1, 4], ROW)]),
    shape("forty dimensions", "iris", "X", "[-1, 4]", inputs=[tensor("X", [1] * 40, [1])]),
    shape("a column more", "iris", "[-1, 4]", "[1, 5]", inputs=[tensor("X", [1, 5], [1] * 5)]),
    shape("values missing", "iris", "X", "3", "4", inputs=[tensor("X", [1, 4], ROW[:3])]),
    shape("values too many", "iris", "X", "5", "4", inputs=[tensor("X", [1, 4], [*ROW, 1])]),
    shape("values for no rows", "iris", "X", "0", inputs=[tensor("X", [0, 4], ROW)]),
    shape("rows without values", "iris", "X", "8", "0", inputs=[tensor("X", [2, 4], [])]),
    shape("lists of other lengths", "echo", "x", inputs=[tensor("x", [2, 2], [[1, 2], [3]])]),
    shape("a fixed side", "image", "image", inputs=[tensor("image", [1, 3, 4, 5], [0] * 60)]),
    shape("no batch axis", "image", "image", inputs=[tensor("image", [3, 4, 4], [0] * 48)]),
    shape("an axis for a scalar", "number", "x", inputs=[tensor("x", [1], [1])]),
    shape(
        "rows that differ between inputs",
        "rnn",
        "x",
        "state",
        inputs=[tensor("x", [2, 8], [0] * 16), tensor("state", [2, 1, 8], [0] * 16)],
    ),
    Case(
        "one of two inputs",
        infer_body(tensor("x", [1, 8], [0] * 8)),
        ("state",),
        model="rnn",
    ),
    # data
    x("no data", "data", data=...),
    x("data of null", "data", data=None),
    x("data that is text", "data", data="5.1 3.5 1.4 0.2"),
    x("data that is an object", "data", data={"0": 1}),
    x("text between numbers", "X", "FP32", data=[5.1, "3.5", 1.4, 0.2]),
    x("a bool between numbers", "X", "FP32", data=[5.1, True, 1.4, 0.2]),
    x("an object between numbers", "X", "FP32", data=[5.1, {}, 1.4, 0.2]),
    shape("lists beside numbers", "iris", "X", inputs=[tensor("X", [1, 4], [1, [2, 3, 4]])]),
    value("a number beyond FP32", "echo", "1e39", "FP32"),
    value("a number beyond any float", "echo", "1e999", "FP32"),
    value("an integer that FP32 cannot hold", "echo", "16777217", "FP32", "16777217"),
    value("a fraction for INT64", "whole", "1.5", "INT64", "1.5"),
    value("an integer beyond INT64", "whole", "9223372036854775808", "INT64"),
    value("a float beyond INT64", "whole", "1e300", "INT64"),
    value("an integer of 5,000 digits", "whole", "9" * 5000),
    value("NaN for INT64", "whole", "NaN", "INT64"),
    value("null for INT64", "whole", "null", "INT64"),
    value("a bool for INT64", "whole", "true", "INT64"),
    value("text for INT64", "whole", '"1"', "INT64"),
    value("a number for text", "text", "1", "BYTES"),
    value("null for text", "text", "null", "BYTES"),
    value("a list for text", "text", '["a"]'),
    # datatype
    x("an unknown datatype", "datatype", "FP99", datatype="FP99"),
    x("a datatype of another library", "datatype", "float32", datatype="float32"),
    x("a datatype that is a number", "datatype", datatype=1),
    x("a datatype of text for floats", "X", "FP32", "BYTES", datatype="BYTES"),
    # outputs, parameters, timeout_ms
    members("an unknown output", "score", "label", "probabilities", outputs=["score"]),
    members("outputs as text", "outputs", outputs="label"),
    members("outputs as numbers", "outputs", outputs=[0]),
    members("parameters as a list", "parameters", parameters=[1]),
    members("a timeout of text", "timeout_ms", timeout_ms="1s"),
    members("a timeout before now", "timeout_ms", timeout_ms=-5),
    members("a timeout of nothing", "timeout_ms", timeout_ms=0),
    members("a timeout beyond 64 bits", "timeout_ms", timeout_ms=2**70),
]  # fmt: skip


class Line(NamedTuple):
    """One request by method, path and headers; the body is a good one for iris."""

    what: str
    method: str
    target: str
    status: int
    code: str
    words: tuple[str, ...] = ()
    headers: dict[str, str] = {}  # noqa: RUF012  a NamedTuple's default is never written to


IRIS = "/v1/models/iris/infer"

LINES = [
    # Methods
    Line("GET to infer", "GET", IRIS, 405, "method_not_allowed", ("POST",)),
    Line("PUT to infer", "PUT", IRIS, 405, "method_not_allowed", ("POST",)),
    Line("PATCH to infer", "PATCH", IRIS, 405, "method_not_allowed", ("POST",)),
    Line("DELETE a model", "DELETE", "/v1/models/iris", 405, "method_not_allowed", ("GET",)),
    Line("POST to a model", "POST", "/v1/models/iris", 405, "method_not_allowed", ("GET",)),
    Line("POST to the list", "POST", "/v1/models", 405, "method_not_allowed", ("GET",)),
    Line("GET to load", "GET", "/v1/models/iris/load", 405, "method_not_allowed", ("POST",)),
    Line("GET to unload", "GET", "/v1/models/iris/unload", 405, "method_not_allowed", ("POST",)),
    Line("PUT to refresh", "PUT", "/v1/models/refresh", 405, "method_not_allowed", ("POST",)),
    Line("POST to health", "POST", "/health/live", 405, "method_not_allowed", ("GET",)),
    Line("POST to metrics", "POST", "/metrics", 405, "method_not_allowed", ("GET",)),
    Line("POST to the root", "POST", "/", 405, "method_not_allowed", ("GET",)),
    Line("TRACE", "TRACE", IRIS, 405, "method_not_allowed", ("POST",)),
    # Paths
    Line("an unknown path", "GET", "/nowhere", 404, "not_found", ("/nowhere",)),
    Line("another version", "POST", "/v9/models/iris/infer", 404, "not_found"),
    Line("an unknown verb", "POST", "/v1/models/iris/predict", 404, "not_found"),
    Line("a slash at the end", "POST", "/v1/models/iris/infer/", 404, "not_found"),
    Line("two slashes", "POST", "//v1/models/iris/infer", 404, "not_found"),
    Line("no model", "POST", "/v1/models//infer", 404, "model_not_found"),
    Line("dots in the path", "GET", "/v1/models/../models/iris", 404, "not_found"),
    # Models
    Line("an unknown model", "POST", "/v1/models/absent/infer", 404, "model_not_found",
         ("Model not found: absent",)),
    Line("an unknown model to load", "POST", "/v1/models/absent/load", 404, "model_not_found",
         ("Model not found: absent",)),
    Line("an unknown model to look at", "GET", "/v1/models/gr%C3%BC%C3%9F", 404, "model_not_found",
         ("Model not found: grüß",)),
    Line("a model in the wrong case", "POST", "/v1/models/IRIS/infer", 404, "model_not_found"),
    Line("a way out of the folder", "POST", "/v1/models/..%2F..%2Fetc%2Fpasswd/infer", 404,
         "model_not_found"),
    Line("a NUL in the id", "POST", "/v1/models/iris%00/infer", 404, "model_not_found"),
    Line("an id that is not UTF-8", "POST", "/v1/models/%FF%FE/infer", 404, "model_not_found"),
    Line("half a percent sign", "POST", "/v1/models/iris%2/infer", 404, "model_not_found"),
    Line("an id of 10,000 letters", "POST", f"/v1/models/{'a' * 10_000}/infer", 404,
         "model_not_found"),
    # Headers
    Line("plain text", "POST", IRIS, 415, "unsupported_media_type", ("application/json",),
         {"Content-Type": "text/plain"}),
    Line("a form", "POST", IRIS, 415, "unsupported_media_type", ("application/json",),
         {"Content-Type": "application/x-www-form-urlencoded"}),
    Line("several parts", "POST", IRIS, 415, "unsupported_media_type", ("application/json",),
         {"Content-Type": "multipart/form-data; boundary=x"}),
    Line("an unknown compression", "POST", IRIS, 415, "unsupported_media_type", ("br", "gzip"),
         {"Content-Encoding": "br"}),
    Line("two compressions", "POST", IRIS, 415, "unsupported_media_type", ("gzip, br",),
         {"Content-Encoding": "gzip, br"}),
    Line("a body that is not compressed", "POST", IRIS, 400, "invalid_input", ("gzip",),
         {"Content-Encoding": "gzip"}),
    Line("a body over the limit", "POST", IRIS, 413, "payload_too_large", ("1048576",),
         {"Content-Length": "1048577"}),
    Line("a body of exabytes", "POST", IRIS, 413, "payload_too_large", ("1048576",),
         {"Content-Length": str(2**62)}),
    Line("a timeout of text", "POST", IRIS, 400, "invalid_input", ("X-Request-Timeout-Ms",),
         {"X-Request-Timeout-Ms": "soon"}),
    Line("a timeout before now", "POST", IRIS, 400, "invalid_input", ("X-Request-Timeout-Ms",),
         {"X-Request-Timeout-Ms": "-1"}),
]  # fmt: skip

HEAD = f"POST {IRIS} HTTP/1.1\r\nHost: a\r\n".encode()

BROKEN = {
    "not HTTP": b"GARBAGE\r\n\r\n",
    "a TLS greeting": bytes.fromhex("16030100c8010000c40303") + bytes(60) + b"\r\n\r\n",
    "an HTTP/2 greeting": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method that nobody knows": b"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n",
    "a version of the future": b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
    "a version of letters": b"GET / HTTQ/1.1\r\nHost: a\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost a\r\n\r\n",
    "a blank in a header's name": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n",
    "a length of letters": HEAD + b"Content-Length: ten\r\n\r\n{}",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length beside chunks": HEAD
    + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a chunk size of letters": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
    "a chunk that is longer than it says": HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
}


@pytest.fixture(scope="module")
def daemon(awake: Daemon) -> Iterator[Daemon]:
    ids = [model["id"] for model in awake.request("GET", "/v1/models").json()]
    for model_id in ids:
        awake.control(model_id, "load")
    workers = awake.workers()
    assert len(workers) == len(ids)
    yield awake
    assert awake.workers() == workers
    assert awake.infer("iris", GOOD).status == 200
    errors = [record for record in awake.log() if record["level"].lower() == "error"]
    assert errors == []


def _check(reply: Reply, status: int, code: str, words: tuple[str, ...]) -> None:
    error = reply.json()
    assert (reply.status, error["code"]) == (status, code), error
    missing = [word for word in words if word not in error["error"]]
    assert not missing, error["error"]
    assert error["request_id"] == reply.headers["x-request-id"]
    assert "Traceback" not in error["error"]


@pytest.mark.parametrize("case", BODIES, ids=lambda case: case.what)
def test_a_body_that_is_wrong(daemon: Daemon, case: Case) -> None:
    reply = daemon.request("POST", f"/v1/models/{case.model}/infer", case.body)
    _check(reply, case.status, case.code, case.words)
    assert len(reply.body) < 1000, "what was sent is repeated at length"


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.what)
def test_a_request_that_is_wrong(daemon: Daemon, line: Line) -> None:
    with daemon.connect() as connection:
        connection.send(request_bytes(line.method, line.target, infer_body(GOOD), line.headers))
        _check(connection.reply(line.method), line.status, line.code, line.words)


@pytest.mark.parametrize("what", BROKEN)
def test_http_that_is_broken_is_refused_and_the_connection_closed(
    daemon: Daemon, what: str
) -> None:
    with daemon.connect() as connection:
        connection.send(BROKEN[what])
        reply = connection.reply()
        assert reply.status == 400
        assert "HTTP" in reply.body.decode()
        assert connection.ended()


@pytest.mark.parametrize("many", ["X-Filler: " + "x" * 100_000, "\r\n".join(["X: y"] * 20_000)])
def test_a_head_without_end_is_refused(daemon: Daemon, many: str) -> None:
    with daemon.connect() as connection:
        connection.send(f"GET /health/live HTTP/1.1\r\nHost: a\r\n{many}\r\n\r\n".encode())
        assert connection.reply().status in (400, 431)


@pytest.mark.parametrize("sent", [0.5, 0.99], ids=["half", "nearly all"])
def test_a_body_that_never_ends_harms_nobody(daemon: Daemon, sent: float) -> None:
    whole = request_bytes("POST", IRIS, infer_body(GOOD))
    with daemon.connect() as connection:
        connection.send(whole[: int(len(whole) * sent)])
    assert daemon.infer("iris", GOOD).status == 200
