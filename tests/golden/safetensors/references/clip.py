from collections.abc import Callable
from typing import Any

import numpy as np
from transformers import (
    CLIPConfig,
    CLIPForImageClassification,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPVisionConfig,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
)

from references.reference import Arrays, Reference, case, images, texts

_SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 36,
    "projection_dim": 7,
}
_WORDS = 40
_TEXT = _SMALL | {"vocab_size": _WORDS, "max_position_embeddings": 16, "eos_token_id": _WORDS - 1}
_LEGACY = _TEXT | {"eos_token_id": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-3}
_IMAGE = _SMALL | {"image_size": 12, "patch_size": 4}
_ODD = _IMAGE | {
    "image_size": 15,
    "patch_size": 5,
    "num_channels": 1,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-3,
}


def _texts() -> list[Arrays]:
    """Every text has an end that its mask shows, some with more of them behind it as padding."""
    requests = texts(_WORDS - 1)
    for request in requests:
        ids, mask = request["input_ids"], request["attention_mask"]
        for row, seen in zip(ids, mask, strict=True):
            end = np.flatnonzero(seen)[-1]
            row[end:] = _WORDS - 1
    return requests


def _pairs() -> list[Arrays]:
    """As many images as texts."""
    random = np.random.default_rng(2)
    return [
        request
        | {"pixel_values": random.normal(size=(len(request["input_ids"]), 3, 12, 12)).astype("f4")}
        for request in _texts()
    ]


def _both(**options: Any) -> CLIPConfig:
    return CLIPConfig(text_config=_TEXT, vision_config=_IMAGE, projection_dim=7, **options)


def _prefixed(make: Callable[[], Reference], prefix: str) -> Callable[[], Reference]:
    """As older versions of the library saved it."""

    def prefixed() -> Reference:
        reference = make()
        reference.tensors = {f"{prefix}.{k}": v for k, v in reference.tensors.items()}
        return reference

    return prefixed


_SMALL_IMAGES, _ODD_IMAGES = images(12), images(15, channels=1)

CASES = {
    "clip": case(CLIPModel, _both(), _pairs()),
    "clip-image-classification": case(
        CLIPForImageClassification, _both(num_labels=5), _SMALL_IMAGES
    ),
    "clip-text": case(CLIPTextModel, CLIPTextConfig(**_TEXT), _texts()),
    "clip-text-legacy": _prefixed(
        case(CLIPTextModel, CLIPTextConfig(**_LEGACY), _texts()), "text_model"
    ),
    "clip-text-projection": case(CLIPTextModelWithProjection, CLIPTextConfig(**_TEXT), _texts()),
    "clip-text-projection-legacy": case(
        CLIPTextModelWithProjection, CLIPTextConfig(**_LEGACY), _texts()
    ),
    "clip-vision": case(CLIPVisionModel, CLIPVisionConfig(**_IMAGE), _SMALL_IMAGES),
    "clip-vision-odd": _prefixed(
        case(CLIPVisionModel, CLIPVisionConfig(**_ODD), _ODD_IMAGES), "vision_model"
    ),
    "clip-vision-projection": case(
        CLIPVisionModelWithProjection, CLIPVisionConfig(**_IMAGE), _SMALL_IMAGES
    ),
    "clip-vision-projection-odd": case(
        CLIPVisionModelWithProjection, CLIPVisionConfig(**_ODD), _ODD_IMAGES
    ),
}
