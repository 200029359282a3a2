"""GTE (Zhang et al. 2024, https://arxiv.org/abs/2407.19669).

The authors' own code calls the architecture New; the transformers library calls it Gte.
"""

from typing import Final

from snoozeml.prepare.safetensors import heads, rotary_bert
from snoozeml.prepare.safetensors.blocks import activation, linear, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Weights
from snoozeml.prepare.safetensors.positions import configured_frequencies, frequencies
from snoozeml.prepare.safetensors.post_norm import layer_norm_eps
from snoozeml.prepare.safetensors.rotary_bert import UNIFIED, Names, Recipe
from snoozeml.prepare.safetensors.text import Encoded
from snoozeml.wire.tensors import Array

_PREFIXES: Final = ("gte", "new", "")

_AUTHORS: Final = Names(
    layers="encoder.layer",
    embeddings_norm="embeddings.LayerNorm",
    qkv=("attention.qkv_proj",),
    out="attention.o_proj",
    attention_norm="attn_ln",
    up_gate=("mlp.up_gate_proj",),
    down="mlp.down_proj",
    mlp_norm="mlp_ln",
)

_REQUIRED: Final = {
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
    "position_embedding_type": "rope",
}


def encode(g: Graph, config: Config) -> Encoded:
    for key, supported in _REQUIRED.items():
        config.require(key, supported)
    w = Weights(g).first_of(*_PREFIXES)
    recipe = Recipe(
        names=_AUTHORS if w.has_any(_AUTHORS.layers) else UNIFIED,
        max_length=config.size("max_position_embeddings", 8192),
        act=config.text("hidden_act", "gelu"),
        eps=layer_norm_eps(config),
        frequencies=_frequencies(config),
    )
    return rotary_bert.encode(g, config, w, recipe)


def _frequencies(config: Config) -> Array:
    size = config.shared("hidden_size", "num_attention_heads")
    if _is_unified(config):
        return configured_frequencies(size, config, 160_000.0)
    theta = config.number("rope_theta", 10_000.0)
    if "rope_scaling" not in config:
        return frequencies(size, theta)
    scaling = config.section("rope_scaling")
    scaling.require("type", "ntk")
    scaling.require("mixed_b")
    factor = scaling.number("factor")
    return frequencies(size, theta * factor, factor ** (2 / size))


def _is_unified(config: Config) -> bool:
    return config.text("model_type", "new") == "gte"


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    w = Weights(g).at("lm_head")
    act = "gelu" if _is_unified(config) else config.text("hidden_act", "gelu")
    x = activation(g, act, linear(g, w.at("dense"), encoded.hidden))
    x = norm(g, w.first_of("norm", "layer_norm"), x, layer_norm_eps(config))
    table = Weights(g).first_of(*_PREFIXES).at("embeddings.word_embeddings")
    heads.tied_words(g, encoded, x, w, table)


_UNIFIED_FAMILY: Final = text_family(
    "gte",
    encode,
    {
        "GteModel": heads.states,
        "GteForMaskedLM": _masked_words,
        "GteForSequenceClassification": heads.classes_of_pooled,
        "GteForTokenClassification": heads.token_classes,
    },
)

_AUTHORS_FAMILY: Final = text_family(
    "new",
    encode,
    {
        "NewModel": heads.states,
        "NewForMaskedLM": _masked_words,
        "NewForSequenceClassification": heads.classes_of_pooled,
        "NewForTokenClassification": heads.token_classes,
    },
)

FAMILIES: Final = (_UNIFIED_FAMILY, _AUTHORS_FAMILY)
