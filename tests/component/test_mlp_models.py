"""What checkpoints of multi-layer perceptrons may look like, and what is not guessed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.safetensors.compare import opened
from snoozeml.errors import ModelFailed, SnoozeError, UnsupportedArchitecture

Shapes = Mapping[str, tuple[int, ...]]

LINEAR: Shapes = {"weight": (4, 4), "bias": (4,)}
BATCH_NORM = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (4,))


def mlp(folder: Path, parts: Mapping[str, Shapes], **config: Any) -> Path:
    """A checkpoint full of ones."""
    shapes = {f"{part}.{name}": s for part, tensors in parts.items() for name, s in tensors.items()}
    header, data = {}, b""
    for name, shape in shapes.items():
        ones = np.ones(shape, np.float32).tobytes()
        offsets = [len(data), len(data) + len(ones)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        data += ones
    encoded = json.dumps(header).encode()
    folder.mkdir()
    content = len(encoded).to_bytes(8, "little") + encoded + data
    (folder / "model.safetensors").write_bytes(content)
    (folder / "config.json").write_text(json.dumps({"model_type": "mlp", **config}))
    return folder


@pytest.mark.parametrize("prefix", ["", "net.", "model.layers."])
def test_numbers_that_are_left_out_are_activations(tmp_path: Path, prefix: str) -> None:
    layers = {f"{prefix}0": LINEAR, f"{prefix}2": LINEAR}
    folder = mlp(tmp_path / "mlp", layers, activation="relu")
    signature, session = opened(folder, tmp_path / "cache")
    assert [(spec.name, spec.shape) for spec in signature.inputs] == [("features", ("batch", 4))]
    assert [(spec.name, spec.shape) for spec in signature.outputs] == [("output", ("batch", 4))]
    rows = np.array([[1, 2, 3, 4], [-5, 0, 0, 0]], np.float32)
    (output,) = session.run(None, {"features": rows})
    np.testing.assert_array_equal(output, [[45] * 4, [1] * 4])


@pytest.mark.parametrize(
    ("parts", "config", "failure", "complaint"),
    [
        (["0", "1"], {"activation": "relu"}, ModelFailed, "the layers 0 to 1, .*one Linear"),
        (["0", "2"], {}, ModelFailed, "config.json lacks activation"),
        (["0", "2", "head"], {}, ModelFailed, r"nn.Sequential: head.weight, head.bias, \*"),
        (["a.0", "b.0"], {}, ModelFailed, r"nn.Sequential: a\.\*, b\.\*; list the layers"),
        (["0"], {"layers": [{"name": "1"}]}, ModelFailed, "lacks the tensor '1.weight'"),
        (["0"], {"layers": [{"activation": "relu"}]}, ModelFailed, r"layers\[0\] lacks name"),
        (["0"], {"layers": {"name": "1"}}, ModelFailed, "layers must be a list of objects"),
        (["0"], {"output_activation": "maxout"}, UnsupportedArchitecture, "activation 'maxout'"),
    ],
)
def test_what_is_not_clear_is_not_guessed(
    tmp_path: Path,
    parts: list[str],
    config: dict[str, Any],
    failure: type[SnoozeError],
    complaint: str,
) -> None:
    folder = mlp(tmp_path / "mlp", dict.fromkeys(parts, LINEAR), **config)
    with pytest.raises(failure, match=complaint):
        opened(folder, tmp_path / "cache")


def test_a_normalisation_between_two_places_for_activations_is_not_guessed(tmp_path: Path) -> None:
    layers = {"0": LINEAR, "2": BATCH_NORM, "4": LINEAR}
    folder = mlp(tmp_path / "mlp", layers, activation="relu")
    with pytest.raises(ModelFailed, match="not clear where the activations are: the layers 2 to 2"):
        opened(folder, tmp_path / "cache")


@pytest.mark.parametrize("weight", [{"weight": (4,)}, {"weight": (4, 4, 3), "bias": (4,)}])
def test_other_kinds_of_layers_are_named(tmp_path: Path, weight: Shapes) -> None:
    names = [{"name": "fc"}, {"name": "odd"}]
    folder = mlp(tmp_path / "mlp", {"fc": LINEAR, "odd": weight}, layers=names)
    with pytest.raises(UnsupportedArchitecture, match=r"layer odd has a weight of shape \[4"):
        opened(folder, tmp_path / "cache")
