"""HTTP as it comes from real clients: old, thrifty, chunked, impatient, confused."""

import json
import re

import pytest

from e2e.client import Connection, Reply, infer_body, request_bytes, tensor
from e2e.daemon import Daemon

INFER = "/v1/models/echo/infer"
BODY = infer_body(tensor("x", [1, 1], [7]))
ANSWER = {"y": [7.0]}
CODED = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "


def _chunked(body: bytes, size: int = 10) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _chunked_request(body: bytes) -> bytes:
    head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + _chunked(body)


def test_a_connection_is_kept_alive(awake: Daemon) -> None:
    with awake.connect() as connection:
        for _ in range(3):
            assert connection.request("POST", INFER, BODY).outputs() == ANSWER
            assert connection.request("GET", "/health/live").status == 200
            assert connection.request("POST", INFER, b"{").status == 400


def test_a_connection_is_closed_when_the_client_says_so(awake: Daemon) -> None:
    with awake.connect() as connection:
        assert connection.request("POST", INFER, BODY, {"Connection": "close"}).status == 200
        assert connection.ended()


def test_http_1_0(awake: Daemon) -> None:
    with awake.connect() as connection:
        head = f"POST {INFER} HTTP/1.0\r\nContent-Length: {len(BODY)}\r\n\r\n"
        connection.send(head.encode() + BODY)
        assert connection.reply().outputs() == ANSWER
        assert connection.ended()


def test_pipelined_requests_are_answered_in_order(awake: Daemon) -> None:
    bodies = [infer_body(tensor("x", [1, 1], [number])) for number in range(20)]
    with awake.connect() as connection:
        connection.send(b"".join(request_bytes("POST", INFER, body) for body in bodies))
        answers = [connection.reply().outputs() for _ in bodies]
    assert answers == [{"y": [float(number)]} for number in range(20)]


def test_pipelined_routes_of_both_kinds_keep_their_order(awake: Daemon) -> None:
    with awake.connect() as connection:
        connection.send(
            request_bytes("POST", INFER, BODY)
            + request_bytes("GET", "/v1/models/echo")
            + request_bytes("GET", "/nowhere")
            + request_bytes("POST", INFER, BODY)
        )
        assert connection.reply().outputs() == ANSWER
        assert connection.reply().json()["id"] == "echo"
        assert connection.reply().status == 404
        assert connection.reply().outputs() == ANSWER


def test_a_body_that_arrives_byte_by_byte(awake: Daemon) -> None:
    with awake.connect() as connection:
        for byte in request_bytes("POST", INFER, BODY):
            connection.send(bytes([byte]))
        assert connection.reply().outputs() == ANSWER


def test_chunked_bodies(awake: Daemon) -> None:
    with awake.connect() as connection:
        for _ in range(2):
            connection.send(_chunked_request(BODY))
            assert connection.reply().outputs() == ANSWER


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("GET / HTTP/1.1\r\n", "one Host header"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n", "one Host header"),
        ("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n", "one Host header"),
        (f"{CODED}gzip, chunked\r\n", "chunked, once"),
        (f"{CODED}identity\r\n", "chunked, once"),
        (f"{CODED}chunked, chunked\r\n", "not a valid HTTP/1.1 request"),
        (f"{CODED}chunked\r\nTransfer-Encoding: chunked\r\n", "not a valid HTTP/1.1 request"),
    ],
)
def test_a_head_that_could_be_taken_for_another_is_refused(
    awake: Daemon, head: str, words: str
) -> None:
    with awake.connect() as connection:
        connection.send(f"{head}\r\n".encode() + _chunked(BODY))
        reply = connection.reply()
        assert (reply.status, reply.json()["code"]) == (400, "invalid_input")
        assert words in reply.json()["error"]
        assert connection.ended()


def test_a_host_may_be_empty_and_a_coding_in_capitals(awake: Daemon) -> None:
    with awake.connect() as connection:
        head = f"POST {INFER} HTTP/1.1\r\nHost:\r\nTransfer-Encoding: Chunked \r\n\r\n"
        connection.send(head.encode() + _chunked(BODY))
        assert connection.reply().outputs() == ANSWER


def test_options_may_ask_about_the_whole_server(awake: Daemon) -> None:
    with awake.connect() as connection:
        reply = connection.request("OPTIONS", "*")
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_expect_100_continue(awake: Daemon) -> None:
    with awake.connect() as connection:
        head = request_bytes("POST", INFER, BODY, {"Expect": "100-continue"})[: -len(BODY)]
        connection.send(head)
        assert connection.reply().status == 100
        connection.send(BODY)
        assert connection.reply().outputs() == ANSWER


@pytest.mark.parametrize("target", ["/", "/health/live", "/health/ready", "/metrics", "/v1/models"])
def test_head_is_get_without_the_body(awake: Daemon, target: str) -> None:
    with awake.connect() as connection:
        head = connection.request("HEAD", target)
        get = connection.request("GET", target)  # in step again: HEAD left nothing behind
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("/", {"GET", "HEAD", "OPTIONS"}),
        ("/health/live", {"GET", "HEAD", "OPTIONS"}),
        ("/metrics", {"GET", "HEAD", "OPTIONS"}),
        ("/v1/models", {"GET", "HEAD", "OPTIONS"}),
        ("/v1/models/echo", {"GET", "HEAD", "OPTIONS"}),
        (INFER, {"POST", "OPTIONS"}),
        ("/v1/models/echo/load", {"POST", "OPTIONS"}),
        ("/v1/models/refresh", {"POST", "OPTIONS"}),
    ],
)
def test_each_path_says_what_it_allows(awake: Daemon, target: str, allowed: set[str]) -> None:
    options = awake.request("OPTIONS", target)
    assert options.status in (200, 204)
    assert _allowed(options) >= allowed
    wrong = awake.request("DELETE", target)
    assert (wrong.status, wrong.json()["code"]) == (405, "method_not_allowed")
    assert _allowed(wrong) == _allowed(options)


def _allowed(reply: Reply) -> set[str]:
    return set(re.split(r",\s*", reply.headers["allow"]))


def test_a_request_id_is_taken_from_the_client(awake: Daemon) -> None:
    mine = {"X-Request-Id": "order-4711"}
    for reply in (
        awake.request("POST", INFER, BODY, mine),
        awake.request("GET", "/v1/models/echo", headers=mine),
        awake.request("POST", INFER, b"{", mine),
        awake.request("GET", "/nowhere", headers=mine),
        awake.request("DELETE", INFER, headers=mine),
    ):
        assert reply.headers["x-request-id"] == "order-4711", reply
        if reply.status >= 400:
            assert reply.json()["request_id"] == "order-4711"


def test_an_error_without_a_request_id_gets_one_of_its_own(awake: Daemon) -> None:
    replies = [
        awake.request("POST", INFER, b"{"),
        awake.request("GET", "/nowhere"),
        awake.request("GET", "/v1/models/absent"),
        awake.request("DELETE", INFER),
    ]
    ids = {reply.headers["x-request-id"] for reply in replies}
    assert len(ids) == len(replies)
    assert all(ids)
    assert [reply.json()["request_id"] for reply in replies] == [
        reply.headers["x-request-id"] for reply in replies
    ]


@pytest.mark.parametrize("evil", ["x" * 5000, "a\tb", "<script>", 'say "hi"', "gr\xfc\xdf"])
def test_a_strange_request_id_never_breaks_an_answer(awake: Daemon, evil: str) -> None:
    reply = awake.request("POST", INFER, b"{", {"X-Request-Id": evil})
    assert reply.status == 400
    assert 0 < len(reply.headers["x-request-id"]) <= 200


class TestBodyLimit:
    """`max_request_bytes` is 1 MiB here; the answer names it."""

    LIMIT = 1048576

    def test_a_body_of_exactly_the_limit_is_taken(self, awake: Daemon) -> None:
        assert awake.request("POST", INFER, BODY.ljust(self.LIMIT)).outputs() == ANSWER

    def test_a_declared_length_over_the_limit_is_refused_unread(self, awake: Daemon) -> None:
        with awake.connect() as connection:
            # The body never comes: whoever waits for it would wait for ever.
            connection.send(
                request_bytes("POST", INFER, b"", {"Content-Length": str(self.LIMIT + 1)})
            )
            self._check(connection.reply())
            assert connection.ended()

    def test_expect_100_continue_is_refused_before_the_body(self, awake: Daemon) -> None:
        with awake.connect() as connection:
            length = {"Content-Length": str(self.LIMIT + 1), "Expect": "100-continue"}
            connection.send(request_bytes("POST", INFER, b"", length))
            self._check(connection.reply())

    def test_a_chunked_body_is_refused_when_it_passes_the_limit(self, awake: Daemon) -> None:
        with awake.connect() as connection:
            self._send_endless_chunks(connection)
            self._check(connection.reply())

    def test_the_daemon_serves_on(self, awake: Daemon) -> None:
        assert awake.request("POST", INFER, BODY).outputs() == ANSWER

    def _send_endless_chunks(self, connection: Connection) -> None:
        head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(head.encode())
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(self.LIMIT // 0x10000 + 1):  # past the limit, and never the last chunk
            connection.send(chunk)

    def _check(self, reply: Reply) -> None:
        assert reply.status == 413
        assert reply.json()["code"] == "payload_too_large"
        assert re.search(r"1048576|1 MiB", reply.json()["error"])


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/octet-stream", "text/json", "nonsense"]
)
def test_other_media_types_are_refused(awake: Daemon, kind: str) -> None:
    reply = awake.request("POST", INFER, BODY, {"Content-Type": kind})
    assert (reply.status, reply.json()["code"]) == (415, "unsupported_media_type")
    assert "application/json" in reply.json()["error"]


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON"]
)
def test_json_is_taken_however_it_is_written(awake: Daemon, kind: str) -> None:
    assert awake.request("POST", INFER, BODY, {"Content-Type": kind}).outputs() == ANSWER


def test_a_body_needs_no_content_type(awake: Daemon) -> None:
    with awake.connect() as connection:
        head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n"
        connection.send(head.encode() + BODY)
        assert connection.reply().outputs() == ANSWER


def test_an_error_is_json_with_message_and_code(awake: Daemon) -> None:
    reply = awake.request("GET", "/v1/models/absent")
    assert reply.status == 404
    error = json.loads(reply.body)
    assert error["error"] == "Model not found: absent"
    assert error["code"] == "model_not_found"
    assert int(reply.headers["content-length"]) == len(reply.body)
