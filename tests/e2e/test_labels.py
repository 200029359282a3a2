"""Classes by their names, where the model or its entry in the configuration has any."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

import models
from e2e.conftest import Serve
from e2e.daemon import Daemon
from golden.safetensors.compare import HERE

SETTINGS = """
[models.listed]
path = "iris.onnx"
labels = ["setosa", "versi:color", "virginica"]
[models.filed]
path = "other.onnx"
labels = "flowers.txt"
[models.mistaken]
path = "third.onnx"
labels = ["too", "few"]
"""
FLOWERS = ["setosa", "versi:color", "virginica"]
ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.2, 2.9, 4.3, 1.3]], np.float32)
TOKENS = np.array([[2, 7, 3], [2, 9, 3]], np.int64)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("models")
    for name in ("iris", "other", "third"):
        models.linear_model(folder / f"{name}.onnx")
    shutil.copytree(HERE / "bert-sequence-classification", folder / "bert")
    (folder / "flowers.txt").write_text("\n".join(FLOWERS) + "\n")
    (folder / "models.toml").write_text(SETTINGS)
    with Daemon(folder, cache_dir) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


@pytest.fixture(params=["http", "grpc"])
def triton(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[tuple[Any, Any]]:
    """Triton's client library for one transport, and a client."""
    library = getattr(tritonclient, request.param)
    client = library.InferenceServerClient(daemon.ready[request.param])
    yield library, client
    client.close()


def best(triton: tuple[Any, Any], model: str, tensor: str, given: Any, output: str) -> Any:
    """The two best classes of each row, as value, index and the rest."""
    library, client = triton
    datatype = "FP32" if given.dtype == np.float32 else "INT64"
    sent = library.InferInput(tensor, list(given.shape), datatype)
    sent.set_data_from_numpy(given)
    wanted = library.InferRequestedOutput(output, class_count=2)
    found = client.infer(model, [sent], outputs=[wanted]).as_numpy(output)
    return [[text.decode().split(":", 2) for text in row] for row in found]


@pytest.mark.parametrize("model", ["listed", "filed"])
def test_the_configuration_names_classes(triton: tuple[Any, Any], model: str) -> None:
    for row in best(triton, model, "X", ROWS, "probabilities"):
        for _, index, label in row:
            assert label == FLOWERS[int(index)]


def test_a_checkpoint_names_its_own_classes(triton: tuple[Any, Any]) -> None:
    for row in best(triton, "bert", "input_ids", TOKENS, "logits"):
        for _, index, label in row:
            assert label == f"LABEL_{index}"


def test_names_for_another_number_of_classes_are_left_out(triton: tuple[Any, Any]) -> None:
    for row in best(triton, "mistaken", "X", ROWS, "probabilities"):
        assert [len(parts) for parts in row] == [2, 2]


def test_new_names_count_after_a_refresh(serve: Serve, models_dir: Path) -> None:
    models.linear_model(models_dir / "iris.onnx")
    (models_dir / "flowers.txt").write_text("a\nb\nc\n")
    daemon = serve('[models.iris]\nlabels = "flowers.txt"\n')
    client = tritonclient.http.InferenceServerClient(daemon.ready["http"])

    def names() -> set[str]:
        found = best((tritonclient.http, client), "iris", "X", ROWS, "probabilities")
        return {label for row in found for _, _, label in row}

    assert names() <= {"a", "b", "c"}
    (models_dir / "flowers.txt").write_text("rose\ntulip\ndaisy\n")
    daemon.refresh()
    assert names() <= {"rose", "tulip", "daisy"}
    client.close()
