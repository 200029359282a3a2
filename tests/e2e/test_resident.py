"""What stays when everything sleeps is small, stays small, and does nothing."""

import re
from pathlib import Path

import pytest

import models
from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.eventually import eventually
from e2e.footprint import cpu_share, cycle, is_alone

MIB = 2**20
RESIDENT_LIMIT = 45 * 10**6
GROWTH_LIMIT = 2 * MIB
CPU_LIMIT = 0.001
ENGINES = ("numpy", "onnx", "onnxruntime", "torch", "simdjson", "scipy", "sklearn")

ONE = tensor("x", [1, 1], [1])


def test_the_idle_daemon_is_small_and_stays_small(serve: Serve, models_dir: Path) -> None:
    """The start is measured after one cycle: what the first request imports is not a leak."""
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve("[server]\nspare_linger_secs = 1\n")
    assert processes.resident_bytes(daemon.pid) <= RESIDENT_LIMIT
    cycle(daemon, "echo")
    start = processes.resident_bytes(daemon.pid)

    for _ in range(200):
        cycle(daemon, "echo")

    eventually(lambda: is_alone(daemon), "the spare leaves")
    assert daemon.model("echo")["loads"] == 201
    end = processes.resident_bytes(daemon.pid)
    assert end <= RESIDENT_LIMIT
    assert end - start <= GROWTH_LIMIT


def test_the_daemon_never_imports_an_engine(serve: Serve, models_dir: Path) -> None:
    """Asked of a running daemon that has done everything, not of one that was only imported."""
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve(PYTHONPROFILEIMPORTTIME="1")  # the interpreter reports each import to stderr
    cycle(daemon, "echo")
    daemon.metrics()
    daemon.refresh()
    daemon.tree()
    mapped = processes.mapped_files(daemon.pid)
    assert daemon.stop() == 0

    imported = {
        match[1]
        for line in daemon.stderr
        if (match := re.match(r"import time: .*\| +(\S+)$", line))
    }
    assert "snoozeml.daemon" in imported
    assert {name for name in imported if name.split(".")[0] in ENGINES} == set()
    libraries = {Path(file).parts for file in mapped if ".so" in file}
    assert libraries
    assert [parts for parts in libraries if set(parts) & set(ENGINES)] == []


def test_a_worker_does_map_an_engine(serve: Serve, models_dir: Path) -> None:
    """So that the check above is known to be able to see one."""
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    daemon.control("echo", "load")
    mapped = processes.mapped_files(daemon.worker())
    assert any("onnxruntime" in Path(file).parts for file in mapped)


@pytest.mark.timeout(90)
def test_loaded_and_idle_costs_no_cpu(serve: Serve, models_dir: Path) -> None:
    for name in ("one", "two", "three"):
        models.identity_model(models_dir / f"{name}.onnx")
    daemon = serve()
    for name in ("one", "two", "three"):
        assert daemon.infer(name, ONE).status == 200
    tree = daemon.tree()
    assert len(tree) == 5, "daemon, spare and three workers"
    settled = eventually(lambda: cpu_share(tree, 0.5) < CPU_LIMIT, "the last answer's work is done")
    assert settled
    assert cpu_share(tree, 20) <= CPU_LIMIT
    assert daemon.tree() == tree
