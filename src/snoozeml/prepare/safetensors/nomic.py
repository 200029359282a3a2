"""NomicBERT (Nussbaum et al. 2024, https://arxiv.org/abs/2402.01613).

Its checkpoints and configurations come in two forms: that of the authors' own code, and that of the
transformers library. Published ones mix them.
"""

from typing import Final

from snoozeml.prepare.safetensors import heads, rotary_bert
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Weights
from snoozeml.prepare.safetensors.positions import configured_frequencies, frequencies
from snoozeml.prepare.safetensors.rotary_bert import UNIFIED, Names, Recipe
from snoozeml.prepare.safetensors.text import Encoded
from snoozeml.wire.tensors import Array

_PREFIXES: Final = ("nomic_bert", "bert", "")
_THETA: Final = 1000.0

_AUTHORS: Final = Names(
    layers="encoder.layers",
    embeddings_norm="emb_ln",
    qkv=("attn.Wqkv",),
    out="attn.out_proj",
    attention_norm="norm1",
    up_gate=("mlp.fc11", "mlp.fc12"),
    down="mlp.fc2",
    mlp_norm="norm2",
)

_GATES: Final = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}
"""The activation of the gates, by what the authors call the layer."""

_REQUIRED: Final[dict[str, tuple[object, ...]]] = {
    "activation_function": tuple(_GATES),
    "causal": (False,),
    "moe_every_n_layers": (0, -1),
    "num_experts": (0,),
    "parallel_block": (False,),
    "prenorm": (False,),
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "rotary_scaling_factor": (),
    "use_rms_norm": (False,),
}


def encode(g: Graph, config: Config) -> Encoded:
    for key, supported in _REQUIRED.items():
        config.require(key, *supported)
    w = Weights(g).first_of(*_PREFIXES)
    recipe = Recipe(
        names=_AUTHORS if w.has_any(_AUTHORS.layers) else UNIFIED,
        max_length=config.size("n_positions", config.size("max_position_embeddings", 2048)),
        act=_gate(config),
        eps=_eps(config),
        frequencies=_frequencies(config),
    )
    return rotary_bert.encode(g, config, w, recipe)


def _frequencies(config: Config) -> Array:
    size = config.shared("hidden_size", "num_attention_heads")
    config.require("head_dim", size)
    if "rope_parameters" in config or "n_embd" not in config:
        return configured_frequencies(size, config, _THETA)
    config.number("rotary_emb_fraction")  # without it positions would not be rotated
    return frequencies(size, config.number("rotary_emb_base"))


def _gate(config: Config) -> str:
    if "activation_function" in config:
        return _GATES[config.text("activation_function")]
    return config.text("hidden_act", "silu")


def _eps(config: Config) -> float:
    return config.number("layer_norm_eps", 1e-5 if "n_embd" in config else 1e-12)


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    w = Weights(g).at("cls.predictions")
    act = _gate(config)
    if "activation_function" in config and act == "sigmoid":
        act = "gelu"  # only the gates of the layers are sigmoids
    x = heads.transformed(g, w.at("transform"), encoded.hidden, act, _eps(config))
    table = Weights(g).first_of(*_PREFIXES).at("embeddings.word_embeddings")
    heads.tied_words(g, encoded, x, w, table)


FAMILY: Final = text_family(
    "nomic_bert",
    encode,
    {
        "NomicBertModel": heads.states,
        "NomicBertForMaskedLM": _masked_words,
        "NomicBertForPreTraining": _masked_words,
        "NomicBertForSequenceClassification": heads.classes_of_pooled,
        "NomicBertForTokenClassification": heads.token_classes,
    },
    names={
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "layer_norm_eps": "layer_norm_epsilon",
    },
)
