"""What plans of image models do beyond answering like the reference."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from golden.safetensors.compare import HERE, opened, requests
from snoozeml.errors import SnoozeError
from snoozeml.prepare.safetensors.checkpoint import StoredTensor, read_checkpoint
from snoozeml.wire.tensors import Array, Tensors


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [("F16", np.dtype("<f2")), ("BF16", np.dtype("<u2"))],
)
def test_weights_of_half_the_width_answer_like_the_same_numbers_in_float32(
    tmp_path: Path, stored: str, dtype: np.dtype
) -> None:
    folder = HERE / "vit-image-classification"
    tensors = read_checkpoint([folder / "model.safetensors"])
    halves = {name: _half(tensor, dtype) for name, tensor in tensors.items()}
    half = _write(tmp_path / "half", folder, stored, halves)
    whole = _write(tmp_path / "whole", folder, "F32", _read(half))
    for inputs, _ in requests(folder):
        answers = [opened(one, tmp_path / "cache")[1].run(None, inputs)[0] for one in (half, whole)]
        np.testing.assert_array_equal(*answers)
        assert np.ptp(answers[0]) > 0.1


def test_a_batch_may_have_no_images(tmp_path: Path) -> None:
    signature, session = opened(HERE / "dinov2", tmp_path)
    answers = session.run(None, {"pixel_values": np.empty((0, 3, 8, 8), np.float32)})
    assert [a.shape for a in answers] == [(0, 5, 24), (0, 24)]
    assert [spec.shape for spec in signature.outputs] == [("images", "tokens", 24), ("images", 24)]


@pytest.mark.parametrize("name", ["clip", "siglip"])
@pytest.mark.parametrize("tower", ["text", "image"])
def test_one_tower_answers_alone_and_the_other_may_have_no_rows(
    tmp_path: Path, name: str, tower: str
) -> None:
    signature, session = opened(HERE / name, tmp_path)
    inputs, wanted = requests(HERE / name)[-1]
    feeds = {
        spec.name: inputs[spec.name] if spec.group == tower else inputs[spec.name][:0]
        for spec in signature.inputs
    }
    for spec, answer in zip(signature.outputs, session.run(None, feeds), strict=True):
        if spec.group == tower:
            np.testing.assert_allclose(answer, wanted[spec.name], atol=1e-6)
        else:
            assert len(answer) == 0


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("vit", {"image_size": [12, 12, 3]}, "image_size must be one or two sizes"),
        ("vit", {"image_size": 0}, "image_size must be one or two sizes"),
        ("vit", {"image_size": 16}, "the weights do not fit the architecture"),
        ("vit", {"hidden_act": "mish"}, "activation 'mish' is not supported"),
        ("vit-without-pooler", {"num_hidden_layers": 3}, "lacks the tensor 'encoder.layer.2"),
        ("clip-text", {"eos_token_id": [1, 2]}, "eos_token_id must be a whole number"),
        ("siglip-vision-without-head", {"vision_use_head": True}, "lacks the tensor 'head."),
    ],
)
def test_a_configuration_that_does_not_fit_is_explained(
    tmp_path: Path, name: str, settings: dict[str, object], complaint: str
) -> None:
    folder = shutil.copytree(HERE / name, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(SnoozeError, match=complaint):
        opened(folder, tmp_path / "cache")


def _half(tensor: StoredTensor, dtype: np.dtype) -> Array:
    whole = tensor.read()
    return whole.astype(dtype) if dtype.kind == "f" else (whole.view("<u4") >> 16).astype(dtype)


def _read(folder: Path) -> Tensors:
    tensors = read_checkpoint([folder / "model.safetensors"])
    return {name: tensor.read() for name, tensor in tensors.items()}


def _write(folder: Path, like: Path, stored: str, tensors: Tensors) -> Path:
    """A checkpoint whose tensors are said to be of type `stored`."""
    folder.mkdir()
    shutil.copy(like / "config.json", folder)
    header, data = {}, b""
    for name, array in tensors.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": stored, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    encoded = json.dumps(header).encode()
    length = len(encoded).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(length + encoded + data)
    return folder
