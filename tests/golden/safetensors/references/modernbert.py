from collections.abc import Callable
from typing import Any

from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    PreTrainedModel,
)

from references.reference import Reference, Transformers, case, texts

_SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 18,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "local_attention": 6,
    "pad_token_id": 0,
    "num_labels": 5,
}
_BIASED: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 20,
    "num_attention_heads": 2,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "local_attention": 4,
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "classifier_bias": True,
    "decoder_bias": False,
    "norm_eps": 1e-3,
    "hidden_activation": "silu",
    "classifier_pooling": "mean",
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}


def _case(model: type[PreTrainedModel], **options: Any) -> Callable[[], Reference]:
    return case(model, ModernBertConfig(**_SIZES | options), texts(40))


def _old() -> Reference:
    """Settings as the first release of the architecture had them."""
    old = {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        "global_attn_every_n_layers": 2,
        "global_rope_theta": 900.0,
        "local_rope_theta": 70.0,
        "position_embedding_type": "absolute",
    }
    settings = _SIZES | old
    return Transformers(ModernBertModel(ModernBertConfig(**settings)), texts(40), config=settings)


CASES = {
    "modernbert": _case(ModernBertModel),
    "modernbert-old": _old,
    "modernbert-biased": _case(ModernBertModel, **_BIASED),
    "modernbert-masked-lm": _case(ModernBertForMaskedLM),
    "modernbert-masked-lm-untied": _case(
        ModernBertForMaskedLM, **_BIASED, tie_word_embeddings=False
    ),
    "modernbert-sequence-classification": _case(ModernBertForSequenceClassification),
    "modernbert-sequence-classification-mean": _case(
        ModernBertForSequenceClassification, **_BIASED
    ),
    "modernbert-token-classification": _case(ModernBertForTokenClassification),
}
