"""NomicBERT in the transformers library, and the same models in the form of the authors' code."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    NomicBertConfig,
    NomicBertForMaskedLM,
    NomicBertForSequenceClassification,
    NomicBertForTokenClassification,
    NomicBertModel,
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
    "num_labels": 5,
}
_OTHER: dict[str, Any] = {
    "hidden_size": 20,
    "num_attention_heads": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 70.0},
}
_AUTHORS: dict[str, Any] = {
    "model_type": "nomic_bert",
    "vocab_size": 40,
    "n_embd": 24,
    "n_head": 3,
    "n_layer": 2,
    "n_inner": 20,
    "n_positions": 16,
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "type_vocab_size": 2,
    "prenorm": False,
    "causal": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
}


def _case(
    model: type[PreTrainedModel], *, original: bool = False, **options: Any
) -> Callable[[], Reference]:
    config = NomicBertConfig(**_SIZES | options)
    return case(model, config, texts(40, types=2), original=original)


def _authors(
    model: PreTrainedModel, architecture: str, prefix: str, **options: Any
) -> Transformers:
    settings = {"architectures": [architecture]} | _AUTHORS | options
    reference = Transformers(model, texts(40, types=2), config=settings)
    reference.tensors = prefixed(reference.tensors, "nomic_bert.", prefix)
    return reference


def _swiglu() -> Reference:
    return _authors(NomicBertModel(NomicBertConfig(**_SIZES)), "NomicBertModel", "")


def _glu_with_biases() -> Reference:
    """The library has no biases here; given some, its layers use them."""
    options: dict[str, Any] = {
        "hidden_act": "sigmoid",
        "layer_norm_eps": 1e-3,
        "type_vocab_size": 1,
    }
    model = NomicBertModel(NomicBertConfig(**_SIZES | options))
    for layer in model.layers:
        for linear in (*layer.self_attn.children(), *layer.mlp.children()):
            if isinstance(linear, torch.nn.Linear):
                linear.bias = torch.nn.Parameter(torch.zeros(linear.out_features))
    settings = {"activation_function": "glu", "layer_norm_epsilon": 1e-3, "type_vocab_size": 1}
    biases = {"qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True}
    reference = _authors(model, "NomicBertModel", "", **settings, **biases)
    reference.inputs = texts(40)
    return reference


def _pretraining() -> Reference:
    options = _SIZES | _OTHER
    model = NomicBertForMaskedLM(NomicBertConfig(**options))
    settings = {"n_embd": 20, "n_head": 2, "activation_function": "geglu"}
    more = {"layer_norm_epsilon": 1e-3, "rotary_emb_base": 70.0}
    return _authors(model, "NomicBertForPreTraining", "bert.", **settings, **more)


def _authors_classification() -> Reference:
    model = NomicBertForSequenceClassification(NomicBertConfig(**_SIZES))
    return _authors(model, "NomicBertForSequenceClassification", "bert.")


CASES = {
    "nomic": _case(NomicBertModel),
    "nomic-other": _case(NomicBertModel, **_OTHER),
    "nomic-masked-lm": _case(NomicBertForMaskedLM),
    "nomic-sequence-classification": _case(NomicBertForSequenceClassification, **_OTHER),
    "nomic-token-classification": _case(NomicBertForTokenClassification, original=True),
    "nomic-authors": _swiglu,
    "nomic-authors-biased": _glu_with_biases,
    "nomic-authors-pretraining": _pretraining,
    "nomic-authors-sequence-classification": _authors_classification,
}
