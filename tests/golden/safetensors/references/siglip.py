import numpy as np
from transformers import (
    SiglipConfig,
    SiglipForImageClassification,
    SiglipModel,
    SiglipTextConfig,
    SiglipTextModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from references.reference import Arrays, case, images, texts

_SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 36,
}
_LENGTH = 9
_TEXT = _SMALL | {"vocab_size": 40, "max_position_embeddings": _LENGTH}
_ODD_TEXT = _TEXT | {"projection_size": 7, "hidden_act": "relu", "layer_norm_eps": 1e-3}
_IMAGE = _SMALL | {"image_size": 12, "patch_size": 4}
_ODD = _IMAGE | {
    "image_size": 15,
    "patch_size": 5,
    "num_channels": 1,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-3,
}


def _texts() -> list[Arrays]:
    """Texts of full length: without a mask, as the library's own processor has it, and with one."""
    full = [request for request in texts(40) if request["input_ids"].shape[1] == _LENGTH]
    return [{"input_ids": full[0]["input_ids"]}, *full]


def _pairs() -> list[Arrays]:
    """As many images as texts."""
    random = np.random.default_rng(2)
    return [
        request
        | {"pixel_values": random.normal(size=(len(request["input_ids"]), 3, 12, 12)).astype("f4")}
        for request in _texts()
    ]


def _both(**options: int) -> SiglipConfig:
    return SiglipConfig(text_config=_TEXT, vision_config=_IMAGE, **options)


_SMALL_IMAGES, _ODD_IMAGES = images(12), images(15, channels=1)

CASES = {
    "siglip": case(SiglipModel, _both(), _pairs()),
    "siglip-image-classification": case(
        SiglipForImageClassification, _both(num_labels=5), _SMALL_IMAGES
    ),
    "siglip-text": case(SiglipTextModel, SiglipTextConfig(**_TEXT), _texts()),
    "siglip-text-odd": case(SiglipTextModel, SiglipTextConfig(**_ODD_TEXT), _texts()),
    "siglip-vision": case(SiglipVisionModel, SiglipVisionConfig(**_IMAGE), _SMALL_IMAGES),
    "siglip-vision-odd": case(SiglipVisionModel, SiglipVisionConfig(**_ODD), _ODD_IMAGES),
    "siglip-vision-without-head": case(
        SiglipVisionModel, SiglipVisionConfig(**_IMAGE, vision_use_head=False), _SMALL_IMAGES
    ),
}
