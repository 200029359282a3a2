"""What the control commands ask, print, and say when they fail."""

import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unit.cli.harness import FakeDaemon, snooze

IRIS: dict[str, Any] = {
    "id": "iris", "state": "ready", "onnx_path": "/models/iris.onnx", "format": "onnx",
    "description": "", "pinned": True, "idle_timeout_secs": 300.0, "max_batch_size": 16,
    "max_batch_delay_ms": 10.0, "last_accessed_secs_ago": 754.2, "memory_bytes": 87_300_000,
    "replicas": 1, "queue_depth": 3, "device": "cpu", "last_error": None, "loads": 2,
    "cold_start_ms": 31.42,
    "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "label", "datatype": "INT64", "shape": [-1]}],
}  # fmt: skip
ASLEEP = {**IRIS, "id": "日本語 модель", "state": "idle", "pinned": False, "memory_bytes": 0,
          "last_accessed_secs_ago": None, "queue_depth": 0}  # fmt: skip

SNOOZE = [sys.executable, "-c", "from snoozeml.cli import main; main()"]


def test_status_without_models_says_what_to_do(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models", [])
    assert "snooze refresh" in snooze("status", "--endpoint", daemon.url).stdout


def test_without_models_it_is_told_which_folder_they_belong_into(daemon: FakeDaemon) -> None:
    folder = {"X-Snooze-Models-Dir": "/srv/m%C3%B6dels"}
    daemon.will_answer("GET /v1/models", [], headers=folder)
    assert "into /srv/mödels, then" in snooze("status", "--endpoint", daemon.url).stdout
    daemon.will_answer("POST /v1/models/refresh", {"models": []}, headers=folder)
    assert "into /srv/mödels, then" in snooze("refresh", "--endpoint", daemon.url).stdout


@pytest.mark.parametrize("named", [["iris"], ["--model-id", "iris"]])
def test_status_of_one_model_tells_everything(daemon: FakeDaemon, named: list[str]) -> None:
    daemon.will_answer("GET /v1/models/iris", IRIS)
    shown = snooze("status", *named, "--endpoint", daemon.url).stdout
    lines = dict(line.split("  ", 1) for line in shown.splitlines() if "  " in line.strip())
    told = {name: value.strip() for name, value in lines.items()}
    assert told["inputs"] == "X  FP32 [-1, 4]"
    assert told["path"] == "/models/iris.onnx"
    assert told["replicas"] == "1"
    assert told["cold start"] == "31.4 ms"


def test_an_older_daemon_that_tells_less_is_shown_all_the_same(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models/iris", {"id": "iris", "state": "ready"})
    result = snooze("status", "iris", "--endpoint", daemon.url)
    assert result.exit_code == 0
    assert "iris" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "asked", "status"),
    [
        (["load"], "load", "loaded"),
        (["load", "--pin"], "pin", "pinned"),
        (["unload"], "unload", "unloaded"),
        (["pin"], "pin", "pinned"),
        (["unpin"], "unpin", "unpinned"),
    ],
)
def test_each_command_asks_for_its_own_change(
    daemon: FakeDaemon, arguments: list[str], asked: str, status: str
) -> None:
    daemon.will_answer(f"POST /v1/models/iris/{asked}", {"model_id": "iris", "status": status})
    result = snooze(*arguments, "iris", "--endpoint", daemon.url)
    assert (result.exit_code, result.stdout) == (0, f"iris is {status}\n")


def test_unload_tells_what_it_gave_back(daemon: FakeDaemon) -> None:
    answer = {"model_id": "iris", "status": "unloaded", "pinned": False, "freed_bytes": 41_200_000}
    daemon.will_answer("POST /v1/models/iris/unload", answer)
    result = snooze("unload", "iris", "--endpoint", daemon.url)
    assert result.stdout == "iris is unloaded; it gave back 41.2 MB\n"


@pytest.mark.parametrize(("models", "said"), [([IRIS], "1 model"), ([IRIS, ASLEEP], "2 models")])
def test_reload_counts_the_models(daemon: FakeDaemon, models: list[Any], said: str) -> None:
    daemon.will_answer("POST /v1/models/refresh", {"models": models})
    assert snooze("reload", "--endpoint", daemon.url).stdout == f"reloaded; {said}\n"


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (401, "unauthenticated", "; --api-key or SNOOZE_API_KEY gives a key"),
        (403, "permission_denied", ""),  # its message says what was not enough, if it was the key
    ],
)
def test_whoever_lacks_a_key_is_told_how_to_give_one(
    daemon: FakeDaemon, status: int, code: str, advice: str
) -> None:
    daemon.will_answer("GET /v1/models", {"error": "no", "code": code}, status)
    result = snooze("status", "--endpoint", daemon.url, "--api-key", "hunter2")
    assert result.exit_code == 1
    assert result.stderr == f"Error: no ({code}){advice}\n"


@pytest.mark.parametrize("command", ["refresh", "reload"])
def test_what_has_changed_is_told_below(daemon: FakeDaemon, command: str) -> None:
    changes = {"added": ["a", "b"], "removed": [], "changed": ["iris"], "needs_restart": ["port"]}
    daemon.will_answer("POST /v1/models/refresh", {"models": [IRIS], **changes})
    lines = snooze(command, "--endpoint", daemon.url).stdout.splitlines()
    assert lines[-3:] == [
        "added: a, b",
        "changed: iris",
        "changed in [server], for the next start: port",
    ]


def test_refresh_shows_the_models_there_are_now(daemon: FakeDaemon) -> None:
    daemon.will_answer("POST /v1/models/refresh", {"models": [IRIS]})
    assert "iris" in snooze("refresh", "--endpoint", daemon.url).stdout


@pytest.mark.parametrize(
    ("arguments", "asked", "answer"),
    [
        (["status"], "GET /v1/models", [IRIS, ASLEEP]),
        (["status", "iris"], "GET /v1/models/iris", IRIS),
        (["load", "iris"], "POST /v1/models/iris/load", {"model_id": "iris", "status": "loaded"}),
    ],
)
def test_json_is_the_daemons_answer(
    daemon: FakeDaemon, arguments: list[str], asked: str, answer: Any
) -> None:
    daemon.will_answer(asked, answer)
    result = snooze(*arguments, "--json", "--endpoint", daemon.url)
    assert json.loads(result.stdout) == answer


def test_odd_model_names_are_percent_encoded(daemon: FakeDaemon) -> None:
    path = "/v1/models/a%2Fb%20%C3%A9%3F%23%25"
    daemon.will_answer(f"GET {path}", IRIS)
    assert snooze("status", "a/b é?#%", "--endpoint", daemon.url).exit_code == 0
    assert daemon.asked == [f"GET {path}"]


def test_a_path_in_front_of_the_api_is_kept(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /behind%20a/pr%C3%B6xy/v1/models", [])
    assert snooze("status", "--endpoint", f"{daemon.url}/behind%20a/pröxy/").exit_code == 0


def test_endpoint_and_key_come_from_the_environment(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models", [])
    assert snooze("status", SNOOZE_ENDPOINT=daemon.url, SNOOZE_API_KEY="k1").exit_code == 0
    assert daemon.headers[0]["Authorization"] == "Bearer k1"


def test_without_a_key_no_credentials_are_sent(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models", [])
    snooze("status", "--endpoint", daemon.url)
    assert "Authorization" not in daemon.headers[0]


@pytest.mark.parametrize(
    ("answer", "status", "headers", "said"),
    [
        ({"error": "the queue is full", "code": "overloaded"}, 503, {"Retry-After": "4"},
         "the queue is full (overloaded); try again in 4 s"),
        ({"error": "no ONNX model", "code": "model_failed"}, 503, {"Retry-After": "1"},
         "no ONNX model (model_failed); it is not tried again for 1 s"),
        (b"<h1>It works!</h1>", 200, {}, "200 OK, not in JSON. Is this a SnoozeML daemon?"),
        (b"\xff\xfe", 200, {}, "200 OK, not in JSON. Is this a SnoozeML daemon?"),
        (b"moved", 301, {"Location": "/"}, "answered 301 Moved Permanently, not in JSON"),
        ({"detail": "Not Found"}, 404, {}, "404 Not Found without a reason. Is this a SnoozeML"),
        (["iris"], 200, {}, "answered a JSON list, not a dict. Is this a SnoozeML daemon?"),
        (b'{"id"', 200, {"Content-Length": "500"}, "broke off"),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_success_is_told_as_it_is(
    daemon: FakeDaemon, answer: Any, status: int, headers: dict[str, str], said: str
) -> None:
    daemon.will_answer("GET /v1/models/iris", answer, status, headers)
    result = snooze("status", "iris", "--endpoint", daemon.url)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert said in result.stderr


def test_a_daemon_that_is_not_there(unused_port: int) -> None:
    url = f"http://127.0.0.1:{unused_port}"
    result = snooze("status", "--endpoint", url)
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: cannot reach {url}: connection refused. Is `snooze serve` running?\n"
    )


def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    result = snooze("status", "--endpoint", "http://nowhere.invalid:1")
    assert result.exit_code == 1
    assert "no address is known for 'nowhere.invalid'" in result.stderr


@pytest.mark.parametrize("host", ["a..b", "日" * 100])
def test_a_host_that_cannot_have_an_address(host: str) -> None:
    result = snooze("status", "--endpoint", f"http://{host}:1")
    assert result.exit_code == 1
    assert f"no address is known for {host!r}" in result.stderr


def test_a_daemon_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        result = snooze("status", "--endpoint", url, "--timeout", "0.05")
    assert result.exit_code == 1
    assert result.stderr == f"Error: no answer from {url} within 0.05 s (--timeout)\n"


def test_tls_against_a_daemon_without_it(daemon: FakeDaemon) -> None:
    url = daemon.url.replace("http:", "https:")
    result = snooze("status", "--endpoint", url)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: no TLS with {url} (")
    assert result.stderr.endswith(f"); a daemon without TLS is at {daemon.url}\n")


@pytest.mark.parametrize(
    ("said", "code", "hint"),
    [
        ("self-signed certificate", 18,
         "; --ca-cert or SNOOZE_CA_CERT names a file of certificates to trust"),
        ("certificate has expired", 10, ""),
    ],
)  # fmt: skip
def test_a_certificate_that_is_not_trusted(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, said: str, code: int, hint: str
) -> None:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] ...")
    error.verify_message, error.verify_code = said, code

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", refuse)
    url = daemon.url.replace("http:", "https:")
    result = snooze("status", "--endpoint", url)
    assert result.exit_code == 1
    assert result.stderr == f"Error: cannot trust {url}: {said}{hint}\n"


def test_a_daemon_that_says_why_it_refuses_us(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] ...")
    error.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", refuse)
    result = snooze("status", "--endpoint", daemon.url.replace("http:", "https:"))
    assert "refused us (tlsv13 alert certificate required). Does it ask" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ca-cert", "nothing.pem"], "'--ca-cert': nothing.pem holds no certificates: "),
        (
            ["--client-cert", "nothing.pem"],
            "'--client-cert': nothing.pem is no certificate with its key",
        ),
        (["--client-key", "nothing.pem"], "belongs to a --client-cert"),
        (["--ca-cert", "absent.pem"], "File 'absent.pem' does not exist"),
    ],
)
def test_files_that_are_no_certificates_are_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nothing.pem").touch()
    result = snooze("status", "--endpoint", "https://h", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("asked_for", "hint"),
    [("irys", "did you mean iris?"), ("qqq", "`snooze status` lists the models")],
)
def test_for_an_unknown_model_the_nearest_one_is_named(
    daemon: FakeDaemon, asked_for: str, hint: str
) -> None:
    unknown = {"error": f"Model not found: {asked_for}", "code": "model_not_found"}
    daemon.will_answer(f"POST /v1/models/{asked_for}/load", unknown, 404)
    daemon.will_answer("GET /v1/models", [IRIS, ASLEEP])
    result = snooze("load", asked_for, "--endpoint", daemon.url)
    assert result.exit_code == 1
    assert result.stderr == f"Error: Model not found: {asked_for} (model_not_found); {hint}\n"


@pytest.mark.parametrize("answer", [(503, {"error": "no", "code": "x"}), (200, ["iris"])])
def test_an_unknown_model_is_told_even_if_nothing_else_can_be_known(
    daemon: FakeDaemon, answer: tuple[int, Any]
) -> None:
    unknown = {"error": "Model not found: irys", "code": "model_not_found"}
    daemon.will_answer("GET /v1/models/irys", unknown, 404)
    daemon.will_answer("GET /v1/models", answer[1], answer[0])
    result = snooze("status", "irys", "--endpoint", daemon.url)
    assert result.exit_code == 1
    assert "Model not found: irys (model_not_found); `snooze status` lists" in result.stderr


def test_an_endpoint_without_a_scheme_is_http(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models", [])
    assert snooze("status", "--endpoint", f"127.0.0.1:{daemon.server_port}").exit_code == 0


@pytest.mark.parametrize("inside", ["/v1", "/v1/", "/v1/models", "/v1/models/iris/infer"])
def test_an_endpoint_inside_the_api_is_told_the_right_one(inside: str) -> None:
    result = snooze("status", "--endpoint", f"http://v1:80/proxy{inside}")
    assert result.exit_code == 2
    assert "not to it; the endpoint is http://v1:80/proxy\n" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--endpoint", "ftp://localhost"],
        ["status", "--endpoint", "localhost:port"],
        ["status", "--endpoint", "http://"],
        ["status", "--endpoint", "http://h:99999"],
        ["status", "--endpoint", "http://h:port"],
        ["status", "--endpoint", "http://h/?a=b"],
        ["status", "--endpoint", "http://a b/"],
        ["status", "--endpoint", "http://user:word@h/"],
        ["status", "--api-key", "two\nlines"],
        ["status", "--api-key", "schlüssel"],
        ["status", "--timeout", "0"],
        ["status", "--timeout", "nan"],
        ["status", "--timeout", "inf"],
        ["load"],
        ["load", ""],
        ["load", "iris", "--model-id", "iris"],
        ["dream"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    result = snooze(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "schlüssel" not in result.stderr


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_left_is_no_error(daemon: FakeDaemon, form: list[str]) -> None:
    daemon.will_answer("GET /v1/models", [IRIS])
    with subprocess.Popen(
        [*SNOOZE, "status", *form, "--endpoint", daemon.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_terminal_of_another_encoding_still_shows_every_model(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models", [ASLEEP])
    shown = subprocess.run(
        [*SNOOZE, "status"],
        env={**os.environ, "SNOOZE_ENDPOINT": daemon.url, "PYTHONIOENCODING": "latin-1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert b"\\u65e5\\u672c\\u8a9e" in shown.stdout
