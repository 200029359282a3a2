from collections.abc import Callable, Sequence

from transformers import (
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersForImageClassification,
    Dinov2WithRegistersModel,
    DINOv3ViTConfig,
    DINOv3ViTModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from references.reference import Reference, case, images

_SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 12,
    "patch_size": 4,
    "num_labels": 5,
    "mlp_ratio": 2,
    "num_register_tokens": 3,  # of configurations that know any
}
_ODD = _SMALL | {
    "image_size": 15,
    "patch_size": 3,
    "num_channels": 1,
    "layer_norm_eps": 1e-3,
    "qkv_bias": False,
    "use_swiglu_ffn": True,
    "num_register_tokens": 1,
}

_V3_SMALL = _SMALL | {"intermediate_size": 36, "num_register_tokens": 2}
_V3_ODD = _V3_SMALL | {
    "patch_size": (3, 2),
    "num_channels": 1,
    "num_attention_heads": 2,
    "hidden_act": "silu",
    "layer_norm_eps": 1e-3,
    "rope_theta": 30.0,
    "use_gated_mlp": True,
    "num_register_tokens": 0,
    "query_bias": False,
    "key_bias": True,
    "value_bias": False,
    "proj_bias": False,
    "mlp_bias": False,
}


def _case(model: type[PreTrainedModel], config: PreTrainedConfig) -> Callable[[], Reference]:
    """Images of the configured size, of others in whole patches, and with pixels left over."""
    inputs = images(config.image_size, (8, 16), (6, 17), channels=config.num_channels)
    return case(model, config, inputs)


def _both(
    name: str, models: Sequence[type[PreTrainedModel]], kind: type[PreTrainedConfig]
) -> dict[str, Callable[[], Reference]]:
    """The plain model and the classifier."""
    names = (name, f"{name}-image-classification")
    return {
        label: make
        for name, model in zip(names, models, strict=True)
        for label, make in (
            (name, _case(model, kind(**_SMALL))),
            (f"{name}-odd", _case(model, kind(**_ODD))),
        )
    }


_REGISTERED = (Dinov2WithRegistersModel, Dinov2WithRegistersForImageClassification)

CASES = {
    **_both("dinov2", (Dinov2Model, Dinov2ForImageClassification), Dinov2Config),
    **_both("dinov2-with-registers", _REGISTERED, Dinov2WithRegistersConfig),
    "dinov3": _case(DINOv3ViTModel, DINOv3ViTConfig(**_V3_SMALL)),
    "dinov3-odd": _case(DINOv3ViTModel, DINOv3ViTConfig(**_V3_ODD)),
}
