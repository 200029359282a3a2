from collections.abc import Callable
from typing import Any

from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    DeiTModel,
    PreTrainedConfig,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from references.reference import Reference, case, images

_SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 36,
    "image_size": 12,
    "patch_size": 4,
    "num_labels": 5,
}
_ODD = _SMALL | {
    "image_size": (15, 10),
    "patch_size": (3, 2),
    "num_channels": 1,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-3,
    "qkv_bias": False,
    "pooler_output_size": 7,
    "pooler_act": "relu",
}


def _case(
    model: type[PreTrainedModel], config: PreTrainedConfig, **options: bool
) -> Callable[[], Reference]:
    inputs = images(config.image_size, channels=config.num_channels)
    return case(model, config, inputs, **options)


def _all(name: str, kind: type[PreTrainedConfig], model: type[PreTrainedModel]) -> dict[str, Any]:
    return {
        name: _case(model, kind(**_SMALL)),
        f"{name}-odd": _case(model, kind(**_ODD)),
        f"{name}-without-pooler": _case(model, kind(**_SMALL), add_pooling_layer=False),
    }


_TEACHER = "deit-image-classification-with-teacher"

CASES = {
    **_all("vit", ViTConfig, ViTModel),
    "vit-image-classification": _case(ViTForImageClassification, ViTConfig(**_SMALL)),
    "vit-image-classification-odd": _case(ViTForImageClassification, ViTConfig(**_ODD)),
    **_all("deit", DeiTConfig, DeiTModel),
    "deit-image-classification": _case(DeiTForImageClassification, DeiTConfig(**_SMALL)),
    _TEACHER: _case(DeiTForImageClassificationWithTeacher, DeiTConfig(**_SMALL)),
    f"{_TEACHER}-odd": _case(DeiTForImageClassificationWithTeacher, DeiTConfig(**_ODD)),
}
