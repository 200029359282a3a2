"""ModernBERT (Warner et al. 2024, https://arxiv.org/abs/2412.13663)."""

from dataclasses import dataclass
from typing import Final

from snoozeml.prepare.safetensors import heads
from snoozeml.prepare.safetensors.blocks import activation, embedding, linear, linears, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import text_family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.positions import Rotary, parametrised_frequencies, window_bias
from snoozeml.prepare.safetensors.text import Encoded, SelfAttention, Tokens, token_inputs

_EPS: Final = 1e-5
_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"
_THETAS: Final = {_FULL: 160_000.0, _SLIDING: 10_000.0}
_OLD_THETAS: Final = {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"}


@dataclass(frozen=True)
class _Kind:
    """How the layers of one kind see their surroundings."""

    attention: SelfAttention
    rotary: Rotary


def encode(g: Graph, config: Config) -> Encoded:
    config.require("rope_scaling")
    w = Weights(g).first_of("model", "")
    tokens = token_inputs(g, config, max_length=config.size("max_position_embeddings", 8192))
    eps = config.number("norm_eps", _EPS)
    words = _words(g, config, w, tokens)
    x = norm(g, w.at("embeddings.norm"), words, eps)
    names = _layer_types(config)
    kinds = {name: _kind(g, config, tokens, name) for name in names}
    for index, name in enumerate(names):
        x = _layer(g, config, w.at(f"layers.{index}"), tokens, kinds[name], x)
    return Encoded(tokens, norm(g, w.at("final_norm"), x, eps))


def _words(g: Graph, config: Config, w: Weights, tokens: Tokens) -> Value:
    table = w.at("embeddings.tok_embeddings")
    return embedding(g, table, tokens.ids, config.size("vocab_size"))


def _layer_types(config: Config) -> list[str]:
    """Of each layer; the first releases only said how many layers apart the full ones are."""
    config.require("layer_types", _FULL, _SLIDING)
    apart = config.size("global_attn_every_n_layers", 3)
    count = config.size("num_hidden_layers")
    return config.texts("layer_types") or [
        _SLIDING if index % apart else _FULL for index in range(count)
    ]


def _kind(g: Graph, config: Config, tokens: Tokens, name: str) -> _Kind:
    features, count = config.size("hidden_size"), config.size("num_attention_heads")
    size = config.shared("hidden_size", "num_attention_heads")
    sliding = name == _SLIDING
    bias = window_bias(g, tokens, config.size("local_attention", 128) // 2) if sliding else None
    theta = config.number(_OLD_THETAS[name], _THETAS[name])
    parameters = config.section("rope_parameters").section(name)
    found = parametrised_frequencies(size, parameters, theta)
    return _Kind(SelfAttention(count, features, bias), Rotary(g, tokens, found))


def _layer(g: Graph, config: Config, w: Weights, tokens: Tokens, kind: _Kind, x: Value) -> Value:
    """Shapes: x, returns: (tokens, features)"""
    eps = config.number("norm_eps", _EPS)
    # The first layer has none: its input has just been normalised.
    inner = norm(g, w.at("attn_norm"), x, eps) if w.has_any("attn_norm") else x
    q, k, v = linears(g, w, ["attn.Wqkv"], inner, 3)
    q, k = kind.rotary.turn(q), kind.rotary.turn(k)
    mixed = kind.attention.attend(g, tokens, (q, k, v))
    x = g.op("Add", x, linear(g, w.at("attn.Wo"), mixed))
    value, gate = linears(g, w, ["mlp.Wi"], norm(g, w.at("mlp_norm"), x, eps), 2)
    value = activation(g, config.text("hidden_activation", "gelu"), value)
    return g.op("Add", x, linear(g, w.at("mlp.Wo"), g.op("Mul", value, gate)))


def _transform(g: Graph, config: Config, x: Value) -> Value:
    """What comes before the last layer of every head."""
    w = Weights(g).at("head")
    x = activation(g, config.text("classifier_activation", "gelu"), linear(g, w.at("dense"), x))
    return norm(g, w.at("norm"), x, config.number("norm_eps", _EPS))


def _masked_words(g: Graph, config: Config, encoded: Encoded) -> None:
    decoder = Weights(g).at("decoder")
    tied = Weights(g).first_of("model", "").at("embeddings.tok_embeddings")
    table = decoder if "weight" in decoder else tied
    x = _transform(g, config, encoded.hidden)
    heads.words(g, encoded, x, table, decoder.maybe("bias"))


def _classes(g: Graph, config: Config, encoded: Encoded) -> None:
    config.require("classifier_pooling", "cls", "mean")
    by_mean = config.text("classifier_pooling", "cls") == "mean"
    pool = encoded.tokens.mean if by_mean else encoded.tokens.first
    heads.text_classes(g, _transform(g, config, pool(encoded.hidden)), "classifier")


def _token_classes(g: Graph, config: Config, encoded: Encoded) -> None:
    x = _transform(g, config, encoded.hidden)
    heads.token_classes(g, config, Encoded(encoded.tokens, x))


FAMILY: Final = text_family(
    "modernbert",
    encode,
    {
        "ModernBertModel": heads.states,
        "ModernBertForMaskedLM": _masked_words,
        "ModernBertForSequenceClassification": _classes,
        "ModernBertForTokenClassification": _token_classes,
    },
)
