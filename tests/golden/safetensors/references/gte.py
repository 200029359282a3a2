"""GTE in the transformers library, and the same models in the form of the authors' code."""

from collections.abc import Callable
from typing import Any

from transformers import (
    GteConfig,
    GteForMaskedLM,
    GteForSequenceClassification,
    GteForTokenClassification,
    GteModel,
    PreTrainedModel,
)

from references.reference import Reference, Transformers, case, prefixed, texts

_SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "type_vocab_size": 0,
    "num_labels": 5,
}
_OTHER: dict[str, Any] = {
    "hidden_size": 20,
    "num_attention_heads": 2,
    "type_vocab_size": 3,
    "hidden_act": "silu",
    "layer_norm_eps": 1e-3,
    "rope_parameters": {"rope_type": "linear", "rope_theta": 70.0, "factor": 1.5},
}
_AUTHORS: dict[str, Any] = {
    "model_type": "new",
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "rope_theta": 500.0,
    "rope_scaling": None,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}


def _case(
    model: type[PreTrainedModel], *, original: bool = False, **options: Any
) -> Callable[[], Reference]:
    inputs = texts(40, types=options.get("type_vocab_size", 0))
    return case(model, GteConfig(**_SIZES | options), inputs, original=original)


def _authors(
    kind: type[PreTrainedModel], architecture: str, **options: Any
) -> Callable[[], Reference]:
    def make() -> Reference:
        rope = {"rope_type": "default", "rope_theta": 500.0} | _ntk(options.get("rope_scaling"))
        settings = _SIZES | options | {"rope_scaling": None}
        model = kind(GteConfig(**settings | {"rope_parameters": rope}))
        inputs = texts(40, types=settings["type_vocab_size"])
        config = {"architectures": [architecture]} | _AUTHORS | _SIZES | options
        reference = Transformers(model, inputs, config=config)
        reference.tensors = prefixed(reference.tensors, "gte.", "new.")
        return reference

    return make


def _ntk(scaling: dict[str, Any] | None) -> dict[str, Any]:
    """Fixed NTK scaling in the library's terms: a larger base, and then a linear stretch.

    The library has it in no other way; formula (6) of https://kexue.fm/archives/9706.
    """
    if scaling is None:
        return {}
    factor, size = scaling["factor"], 8
    return {
        "rope_type": "linear",
        "rope_theta": 500.0 * factor,
        "factor": factor ** (2 / size),
    }


CASES = {
    "gte": _case(GteModel),
    "gte-other": _case(GteModel, **_OTHER),
    "gte-masked-lm": _case(GteForMaskedLM),
    "gte-masked-lm-untied": _case(GteForMaskedLM, **_OTHER, tie_word_embeddings=False),
    "gte-sequence-classification": _case(GteForSequenceClassification, **_OTHER),
    "gte-token-classification": _case(GteForTokenClassification, original=True),
    "gte-authors": _authors(GteModel, "NewModel"),
    "gte-authors-ntk": _authors(
        GteModel, "NewModel", rope_scaling={"type": "ntk", "factor": 8.0}, type_vocab_size=1
    ),
    "gte-authors-masked-lm": _authors(GteForMaskedLM, "NewForMaskedLM"),
    "gte-authors-sequence-classification": _authors(
        GteForSequenceClassification, "NewForSequenceClassification", type_vocab_size=1
    ),
    "gte-authors-token-classification": _authors(
        GteForTokenClassification, "NewForTokenClassification"
    ),
}
