"""SnoozeML makes no connection that its configuration did not ask for."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import models
from e2e import isolated
from e2e.conftest import Serve
from e2e.sockets import Socket, internet_sockets, watched


@pytest.fixture(autouse=True)
def two_models(models_dir: Path) -> None:
    models.linear_model(models_dir / "iris.onnx")
    models.identity_model(models_dir / "echo.onnx")


def test_every_socket_of_the_tree_is_on_loopback(serve: Serve) -> None:
    daemon = serve()
    with watched(daemon.tree) as seen:
        isolated.demo_walk(daemon)
    assert Socket("tcp", "127.0.0.1", "127.0.0.1") in seen, "the watcher saw no connection of ours"
    assert {found for found in seen if not found.stays_home} == set()


def test_the_watcher_sees_what_leaves_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("0.0.0.0", 0))
        strangers = [found for found in internet_sockets([os.getpid()]) if not found.stays_home]
    assert Socket("udp", "0.0.0.0", "0.0.0.0") in strangers


def test_nobody_tries_to_leave_a_world_without_network(models_dir: Path, tmp_path: Path) -> None:
    """With a cold cache and telemetry not switched off from outside."""
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    arguments = [str(models_dir), str(tmp_path / "cache")]
    run = subprocess.run(
        [sys.executable, "-m", "e2e.isolated", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
    )
    if run.returncode == isolated.NOT_PERMITTED and "CI" not in os.environ:
        pytest.skip("this machine does not let us make a network namespace")
    assert run.returncode == 0, run.stderr
    counted = json.loads(run.stdout)
    assert counted["with_a_stranger"] > counted["during_demo"], "the counters do not count"
    assert counted["during_demo"] == 0
