"""Daemons to test, each over a folder of models of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import models
from e2e import v2_models
from e2e.daemon import Daemon

Serve = Callable[..., Daemon]
"""`serve(settings, **environment)`; settings are the text of models.toml."""


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of prepared models for all daemons: each test model is prepared once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def serve(models_dir: Path, cache_dir: Path) -> Iterator[Serve]:
    """Starts daemons over `models_dir`; those that still run after the test must stop in order."""
    with ExitStack() as stack:
        daemons: list[Daemon] = []

        def start(settings: str = "", **env: str) -> Daemon:
            if settings:
                (models_dir / "models.toml").write_text(settings)
            daemons.append(stack.enter_context(Daemon(models_dir, cache_dir, env=env)))
            return daemons[-1]

        yield start
        for daemon in daemons:
            if daemon.running:
                assert daemon.stop() == 0, daemon.stderr


@pytest.fixture(scope="session")
def awake(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Daemon]:
    """A daemon that tests share which leave no trace in it; its models never sleep.

    `iris` is a classifier, `echo` gives floats back, `text` strings, `image` has a fixed batch
    dimension, `rnn` a state with the batch on axis 1, `number` takes a scalar.
    """
    folder = tmp_path_factory.mktemp("models")
    models.linear_model(folder / "iris.onnx")
    models.identity_model(folder / "echo.onnx")
    models.identity_model(folder / "whole.onnx", datatype=models.INT64)
    models.string_model(folder / "text.onnx")
    models.fixed_batch_model(folder / "image.onnx")
    models.recurrent_model(folder / "rnn.onnx")
    models.scalar_model(folder / "number.onnx")
    (folder / "models.toml").write_text(
        "[server]\nmax_request_bytes = 1048576\n[defaults]\nidle_timeout_secs = 0\n"
    )
    with Daemon(folder, cache_dir) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


@pytest.fixture(scope="session", params=["native", "grpcio"])
def over_grpc(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache_dir: Path
) -> Iterator[Daemon]:
    """Like `awake`, served by one library for gRPC, then by the other.

    There is a model for every datatype, called after it, that gives back what it gets.
    """
    folder = tmp_path_factory.mktemp("models")
    for datatype, number in models.DATATYPES.items():
        models.identity_model(folder / f"{datatype}.onnx", datatype=number)
    models.linear_model(folder / "iris.onnx")
    models.string_model(folder / "text.onnx")
    models.scalar_model(folder / "number.onnx")
    models.burning_model(folder / "burning.onnx")
    (folder / "models.toml").write_text(
        "[server]\nmax_request_bytes = 67108864\n[defaults]\nidle_timeout_secs = 0\n"
    )
    with Daemon(folder, cache_dir, env={"SNOOZE_GRPC_LIBRARY": request.param}) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


@pytest.fixture(scope="session")
def v2(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Daemon]:
    """A daemon that tests of `/v2` share; see `v2_models`."""
    with v2_models.serving(tmp_path_factory.mktemp("v2"), cache_dir) as daemon:
        yield daemon
