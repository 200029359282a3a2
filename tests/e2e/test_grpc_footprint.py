"""What gRPC costs in memory, and that asking about a model costs no more than preparing it."""

from pathlib import Path

import numpy as np
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

import models
from e2e import processes
from e2e.conftest import Serve
from e2e.daemon import Daemon
from e2e.grpc_client import CHECK, Client, Reply, tensor

RESIDENT_LIMIT = 45 * 10**6


def _has_grpcio(daemon: Daemon) -> bool:
    return any("cygrpc" in file for file in processes.mapped_files(daemon.pid))


def test_grpcio_stays_out_of_memory_until_a_stream_needs_it(serve: Serve, models_dir: Path) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    assert processes.resident_bytes(daemon.pid) <= RESIDENT_LIMIT
    with Client(daemon.ready["grpc"]) as client:
        client.infer("echo", tensor("x", np.zeros((1, 1))))
        assert isinstance(client.call(CHECK, b""), Reply)
        assert not _has_grpcio(daemon)
        assert processes.resident_bytes(daemon.pid) <= RESIDENT_LIMIT
        assert ProtoReflectionDescriptorDatabase(client.channel).get_services()
        assert _has_grpcio(daemon)


def test_a_model_that_was_never_prepared_is_prepared_but_not_loaded(
    serve: Serve, models_dir: Path, tmp_path: Path
) -> None:
    models.linear_model(models_dir / "iris.onnx")
    daemon = serve(SNOOZE_CACHE_DIR=str(tmp_path / "cache"))
    assert daemon.model("iris")["inputs"] is None
    client = InferenceServerClient(daemon.ready["grpc"])
    (given,) = client.get_model_metadata("iris").inputs
    client.close()
    assert (given.name, list(given.shape)) == ("X", [-1, 4])
    assert daemon.model("iris")["inputs"] is not None
    assert daemon.model("iris")["loads"] == 0
    assert daemon.workers() == []


def test_a_model_that_cannot_be_prepared_says_why(serve: Serve, models_dir: Path) -> None:
    (models_dir / "broken.onnx").write_bytes(b"no model")
    daemon = serve()
    client = InferenceServerClient(daemon.ready["grpc"])
    with pytest.raises(InferenceServerException, match=r"broken\.onnx"):
        client.get_model_metadata("broken")
    client.close()
