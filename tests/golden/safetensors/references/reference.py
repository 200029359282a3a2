"""What a golden file is made of, and the models of the transformers library as such."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import PreTrainedConfig, PreTrainedModel

Arrays = Mapping[str, np.ndarray]


class Reference(Protocol):
    """A model to compare with.

    Attributes:
        config: as in its config.json.
        tensors: as in its checkpoint.
        inputs: requests to answer.
    """

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    inputs: Sequence[Arrays]

    def infer(self, inputs: Arrays) -> Arrays: ...


class Transformers:
    """A model of the transformers library, with every parameter random.

    Its own initialisation has biases of zero and scales of one, and would hide where they go.

    Args:
        config: settings, and the architecture's name, as other code saves them; without them, as
            the library does.
        original: whether tensors have the names of the authors' own code, which the library gives
            them unless told not to; for few models they differ.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: Sequence[Arrays],
        seed: int = 0,
        *,
        config: dict[str, Any] | None = None,
        original: bool = True,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.1 * noise)
        self._model = model.eval()
        self.inputs = inputs
        usual, self.tensors = _saved(model, original)
        version = {"transformers_version": usual["transformers_version"]}
        self.config = usual if config is None else config | version

    def infer(self, inputs: Arrays) -> Arrays:
        with torch.no_grad():
            given = {name: torch.from_numpy(array) for name, array in inputs.items()}
            outputs = self._model(**given)
        return {
            name: value.numpy()
            for name, value in outputs.items()
            if isinstance(value, torch.Tensor) and value.ndim > 0
        }


def case(
    model: type[PreTrainedModel],
    config: PreTrainedConfig,
    inputs: Sequence[Arrays],
    *,
    original: bool = True,
    **options: bool,
) -> Callable[[], Reference]:
    """Makes a reference when called. Args: options: of the model's constructor."""
    return lambda: Transformers(model(config, **options), inputs, original=original)


def _saved(model: PreTrainedModel, original: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Configuration and tensors as the library saves them, tied ones once."""
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder, save_original_format=original)
        config = json.loads(Path(folder, "config.json").read_text())
        return config, load_file(Path(folder, "model.safetensors"))


def prefixed(tensors: Mapping[str, np.ndarray], old: str, new: str) -> dict[str, np.ndarray]:
    """Tensors of a model that others save under another prefix than the library does."""
    return {
        new + name.removeprefix(old) if name.startswith(old) else name: tensor
        for name, tensor in tensors.items()
    }


def texts(
    vocabulary: int, *, types: int = 0, longest: int = 9, padding: int = 0, seed: int = 1
) -> list[Arrays]:
    """Requests of several lengths and masks.

    Args:
        types: kinds of token types; 0: the model takes none.
        padding: the id at places that the mask leaves out; and, if it is an id like others, it
            occurs elsewhere, too.
    """
    random = np.random.default_rng(seed)
    requests = []
    for masks in _masks(longest):
        ids = np.where(masks, random.integers(3, vocabulary, masks.shape), padding)
        request = {"input_ids": ids, "attention_mask": masks}
        if types:
            request["token_type_ids"] = random.integers(0, types, masks.shape)
        requests.append(request)
    return requests


def _masks(longest: int) -> list[np.ndarray]:
    one, four = np.ones((1, 1), np.int64), np.ones((1, 4), np.int64)
    ragged = np.ones((3, longest), np.int64)
    ragged[1, longest // 2 :] = 0
    ragged[2, 1:] = 0
    holes = np.ones((2, longest), np.int64)
    holes[0, 2:4] = 0
    holes[1, :3] = 0
    return [one, four, ragged, holes]


def images(*sizes: int | tuple[int, int], channels: int = 3, seed: int = 1) -> list[Arrays]:
    """Requests of one image and of three. Args: sizes: in pixels; a pair is (height, width)."""
    random = np.random.default_rng(seed)
    requests = []
    for size in sizes:
        height, width = (size, size) if isinstance(size, int) else size
        for rows in (1, 3):
            pixels = random.normal(size=(rows, channels, height, width))
            requests.append({"pixel_values": pixels.astype(np.float32)})
    return requests
