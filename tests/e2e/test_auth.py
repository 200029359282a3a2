"""Credentials in a whole daemon: limits, reloading, and where secrets must not turn up."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGHUP
from typing import Any

import grpc
import pytest

import models
from e2e import processes
from e2e.client import infer_body, tensor
from e2e.conftest import Serve
from e2e.credentials import ENVIRONMENT, KEYS, SETTINGS, bearer, token
from e2e.daemon import Daemon
from e2e.eventually import eventually
from e2e.grpc_client import INFER, Client, Refused, Reply
from python_models import python_model
from snoozeml.core.roles import Role

ONE = infer_body(tensor("x", [1, 1], [1]))
V2 = "/inference.GRPCInferenceService"
ADMIN = bearer(KEYS[Role.ADMIN])


@pytest.fixture
def echo(models_dir: Path) -> Path:
    return models.identity_model(models_dir / "echo.onnx")


def key(text: str, role: str, more: str = "") -> str:
    return f'[[auth.api_keys]]\nkey = "{text}"\nrole = "{role}"\n{more}\n'


def status(daemon: Daemon, secret: str, path: str = "/v1/models") -> int:
    return daemon.request("GET", path, headers=bearer(secret)).status


def snooze(daemon: Daemon, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    endpoint = f"http://{daemon.ready['http']}"
    return subprocess.run(
        [sys.executable, "-m", "snoozeml", *arguments, "--endpoint", endpoint],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


# Limits


def test_a_mistyped_id_is_met_with_the_nearest_that_its_key_may_see(
    serve: Serve, models_dir: Path
) -> None:
    for name in ("bge-small", "bge-large"):
        models.identity_model(models_dir / f"{name}.onnx")
    daemon = serve(key("limited", "infer", 'models = ["bge-l*"]') + key("whole", "admin"))

    def refusal(method: str, path: str, secret: str) -> str:
        reply = daemon.request(method, path, ONE if method == "POST" else None, bearer(secret))
        assert reply.status == 404
        return str(reply.json()["error"])

    told = "Model not found: bge-lmall; did you mean bge-small?"
    assert refusal("POST", "/v1/models/bge-lmall/infer", "whole") == told
    assert refusal("POST", "/v2/models/bge-lmall/infer", "whole") == told
    assert refusal("GET", "/v1/models/bge-lmall", "whole") == told
    assert "bge-small" not in refusal("POST", "/v1/models/bge-lmall/infer", "limited")
    assert "bge-small" not in refusal("GET", "/v1/models/bge-lmall", "limited")


def test_a_key_for_some_models_sees_and_uses_only_those(serve: Serve, models_dir: Path) -> None:
    for name in ("bge-small", "bge-large", "iris"):
        models.identity_model(models_dir / f"{name}.onnx")
    daemon = serve(key("limited", "infer", 'models = ["bge-*"]') + key("whole", "admin"))
    limited = bearer("limited")
    seen = daemon.request("GET", "/v1/models", headers=limited).json()
    assert [model["id"] for model in seen] == ["bge-large", "bge-small"]
    assert len(daemon.request("GET", "/v1/models", headers=bearer("whole")).json()) == 3
    statistics = daemon.request("GET", "/v2/models/stats", headers=limited).json()["model_stats"]
    assert [model["name"] for model in statistics] == ["bge-large", "bge-small"]
    index = daemon.request("POST", "/v2/repository/index", b"{}", limited).json()
    assert [model["name"] for model in index] == ["bge-large", "bge-small"]
    with Client(daemon.ready["grpc"]) as over_grpc:
        method = "/inference.GRPCInferenceService/RepositoryIndex"
        answer = over_grpc.call(method, b"", metadata=[("x-api-key", "limited")])
        assert isinstance(answer, Reply)
        assert b"bge-large" in answer.body
        assert b"iris" not in answer.body
    ask = "/v1/models/{}/infer"
    assert daemon.request("POST", ask.format("bge-small"), ONE, limited).status == 200
    for model_id in ("iris", "nothing", "%62ge"):
        reply = daemon.request("POST", ask.format(model_id), ONE, limited)
        assert (reply.status, reply.json()["code"]) == (403, "permission_denied")


def test_a_key_that_asks_too_often_is_told_when_to_come_back(serve: Serve, echo: Path) -> None:
    rate = "requests_per_second = 0.1\nburst = 3"
    daemon = serve(key("often", "ro", rate) + key("whole", "admin"))
    assert [status(daemon, "often") for _ in range(5)] == [200] * 3 + [429] * 2
    reply = daemon.request("GET", "/v1/models", headers=bearer("often"))
    assert reply.json()["code"] == "rate_limited"
    assert 8 <= int(reply.headers["retry-after"]) <= 10
    assert status(daemon, "whole") == 200


def test_refusals_are_counted_whatever_they_came_over(serve: Serve, echo: Path) -> None:
    daemon = serve(key("whole", "admin"))

    def counted() -> float:
        return daemon.metrics(bearer("whole"))['snoozeml_auth_failures_total{reason="missing"}']

    before = counted()
    for target in ("/v1/models/echo/infer", "/v2/models/echo/infer", "/v1/models/upload"):
        assert daemon.request("POST", target, ONE).status == 401
    assert daemon.request("GET", "/v2/models/echo").status == 401
    with Client(daemon.ready["grpc"]) as client:
        named = b"\x0a\x04echo"  # in both protocols the first field names the model
        for method in (INFER, f"{V2}/ModelInfer", f"{V2}/ModelReady"):
            for body in (named, b"\xff"):
                refusal = client.call(method, body)
                assert isinstance(refusal, Refused)
                assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError):
            list(client.stream(f"{INFER}Stream", [named]))
    assert counted() - before == 11


def test_whoever_is_refused_before_the_body_gets_an_answer_all_the_same(
    serve: Serve, echo: Path
) -> None:
    daemon = serve(key("whole", "admin"))
    large = infer_body(tensor("x", [1, 500_000], [0.5] * 500_000))
    with daemon.connect() as connection:
        assert connection.request("POST", "/v1/models/echo/infer", large).status == 401
        assert connection.request("GET", "/v1/models", headers=bearer("whole")).status == 200


# Starting and reloading


def test_enabled_without_any_credential_refuses_to_start(models_dir: Path) -> None:
    (models_dir / "models.toml").write_text("[auth]\nenabled = true\n")
    command = [sys.executable, "-m", "snoozeml", "serve", "--port", "0", "--models-dir"]
    result = subprocess.run(
        [*command, str(models_dir)], capture_output=True, text=True, timeout=20, check=False
    )
    assert result.returncode == 1
    assert "models.toml: auth.enabled: is true, but nobody could ever come in" in result.stderr
    assert "set SNOOZE_API_KEY" in result.stderr


def test_a_hang_up_signal_changes_who_may_come_in(
    serve: Serve, echo: Path, models_dir: Path
) -> None:
    daemon = serve(key("old", "admin"))
    assert (status(daemon, "old"), status(daemon, "new")) == (200, 401)
    (models_dir / "models.toml").write_text(key("new", "readonly"))
    daemon.send_signal(SIGHUP)
    eventually(lambda: status(daemon, "new") == 200, "the new key works")
    assert status(daemon, "old") == 401


def test_a_bad_file_keeps_the_old_keys_and_says_why_and_quotes_none(
    serve: Serve, echo: Path, models_dir: Path
) -> None:
    daemon = serve(key("old", "admin"))
    (models_dir / "models.toml").write_text(key("hunter2", "admin") + key("hunter2", "cook"))
    reply = daemon.request("POST", "/v1/models/refresh", headers=bearer("old"))
    assert reply.status == 400
    assert "nothing was changed" in reply.json()["error"]
    assert "auth.api_keys, entry 2.role: 'cook' was given" in reply.json()["error"]
    assert "hunter2" not in reply.body.decode() + "".join(daemon.stderr)
    assert (status(daemon, "old"), status(daemon, "hunter2")) == (200, 401)


def test_the_command_line_reloads_with_a_key_and_explains_without_one(
    serve: Serve, echo: Path, models_dir: Path
) -> None:
    daemon = serve(key("boss", "admin") + key("looks", "ro"))
    (models_dir / "models.toml").write_text(key("boss", "admin") + key("looks", "admin"))
    nobody = snooze(daemon, "reload")
    assert nobody.returncode == 1
    assert "(unauthenticated); --api-key or SNOOZE_API_KEY gives a key" in nobody.stderr
    denied = snooze(daemon, "reload", SNOOZE_API_KEY="looks")
    assert denied.returncode == 1
    assert "has the role readonly; this needs admin (permission_denied)" in denied.stderr
    assert snooze(daemon, "reload", "--api-key", "boss").stdout == "reloaded; 1 model\n"
    assert snooze(daemon, "reload", SNOOZE_API_KEY="looks").returncode == 0


# Secrets


@contextmanager
def watching(daemon: Daemon) -> Iterator[dict[tuple[int, str], str]]:
    """The environment of every process below the daemon, by number and command line; prepare does
    not live long.
    """
    seen: dict[tuple[int, str], str] = {}
    stop = threading.Event()
    own = processes.command_line(daemon.pid)

    def watch() -> None:
        while not stop.is_set():
            for pid in daemon.tree()[1:]:
                try:
                    command = processes.command_line(pid)
                    environment = Path(f"/proc/{pid}/environ").read_text(errors="replace")
                except OSError:
                    continue
                # Else it is on its way to become another program, or has ended, perhaps in between.
                if command != own and any(command) and environment:
                    seen[pid, " ".join(command)] = environment

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


@pytest.mark.parametrize("linger_s", [0, 600], ids=["executed", "forked"])
def test_no_child_inherits_a_secret(
    serve: Serve, models_dir: Path, echo: Path, tmp_path: Path, linger_s: int
) -> None:
    """Prepare, spare, workers, and the interpreter of a Python model; the rest they do inherit."""
    python_model(models_dir / "own", env={"APART": "yes"})
    more = {"SNOOZE_API_KEY": "of-the-owner", "SNOOZE_API_KEYS": "ro:of-a-guest", "KEPT": "yes"}
    settings = f"[server]\nspare_linger_secs = {linger_s}\n{SETTINGS}"
    daemon = serve(settings, **ENVIRONMENT, **more, SNOOZE_CACHE_DIR=str(tmp_path / "cache"))
    with watching(daemon) as seen:
        for name in ("echo", "own"):
            assert daemon.request("POST", f"/v1/models/{name}/load", b"", ADMIN).status == 200
        running = {*daemon.tree()[1:]}
        eventually(lambda: running <= {pid for pid, _ in seen}, "all were seen")
    programs = {command.partition("-m ")[2].split()[0] for _, command in seen if "-m " in command}
    assert {
        "snoozeml.prepare",
        "snoozeml.worker.spare" if linger_s else "snoozeml.worker",
    } <= programs
    assert any("guest" in command for _, command in seen), seen.keys()
    secrets = {*ENVIRONMENT, *ENVIRONMENT.values(), "SNOOZE_API_KEY", "of-the-owner", "of-a-guest"}
    for process, environment in seen.items():
        assert "KEPT=yes" in environment, process
        assert not [secret for secret in secrets if secret in environment], process


def test_what_is_kept_carelessly_is_warned_of_once(
    serve: Serve, echo: Path, models_dir: Path
) -> None:
    daemon = serve(key("hunter2", "admin"))
    daemon.request("POST", "/v1/models/refresh", headers=bearer("hunter2"))
    assert daemon.stop() == 0  # and with it, the log is complete
    warned = [line["event"] for line in daemon.log() if line["level"] == "warning"]
    assert len(warned) == 1
    assert "entry 1: the key stands in the file for all to read" in warned[0]


def test_the_most_talkative_log_holds_no_credentials_not_even_wrong_ones(
    serve: Serve, echo: Path
) -> None:
    daemon = serve(SETTINGS, **ENVIRONMENT, SNOOZE_LOG_LEVEL="debug")
    good, bad = token(), token("another secret, as long as the real one is, or longer")
    shown: list[Any] = ["wrong-key", *KEYS.values(), good, bad]
    for secret in shown:
        for target in ("/v1/models", "/metrics", "/v1/models/nothing"):
            daemon.request("GET", target, headers=bearer(secret))
        daemon.request("POST", "/v1/models/refresh", headers=bearer(secret))
    assert daemon.stop() == 0
    log = "\n".join(daemon.stderr)
    assert "refused" in log
    assert not [secret for secret in (*shown, *ENVIRONMENT.values()) if secret in log]
