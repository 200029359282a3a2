"""ViT (Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929), and DeiT.

DeiT (Touvron et al. 2020, https://arxiv.org/abs/2012.12877) adds a distillation token, whose own
classifier is taught by another network.
"""

from typing import Final

from snoozeml.prepare.safetensors.blocks import activation, linear, linears, mlp, norm
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import Family
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.images import (
    Sequences,
    image_classes,
    image_input,
    image_output,
    image_states,
    patches,
    preceded,
)

_EPS: Final = 1e-12
_CLASS: Final = 0  # the class token's place
_DISTILLATION: Final = 1


def _encode(g: Graph, config: Config, w: Weights) -> tuple[Sequences, Value]:
    """Shapes: returns: (batch * tokens, features)"""
    tokens = _embed(g, config, w.at("embeddings"))
    x = tokens.rows
    for index in range(config.size("num_hidden_layers", 12)):
        x = _layer(g, config, w.at(f"encoder.layer.{index}"), tokens, x)
    return tokens, norm(g, w.at("layernorm"), x, config.number("layer_norm_eps", _EPS))


def _embed(g: Graph, config: Config, w: Weights) -> Sequences:
    pixels = image_input(g, config)
    x = patches(g, w.at("patch_embeddings.projection"), pixels)
    extra = ("cls_token", "distillation_token")
    x = preceded(g, x, *(w[name] for name in extra if name in w))
    _, length, features = w.shape("position_embeddings")
    return Sequences(g, g.op("Add", x, w["position_embeddings"]), length, features)


def _layer(g: Graph, config: Config, w: Weights, tokens: Sequences, x: Value) -> Value:
    eps = config.number("layer_norm_eps", _EPS)
    seen = norm(g, w.at("layernorm_before"), x, eps)
    q, k, v = linears(g, w.at("attention.attention"), ("query", "key", "value"), seen, 3)
    attended = tokens.attend(q, k, v, heads=config.size("num_attention_heads", 12))
    x = g.op("Add", x, linear(g, w.at("attention.output.dense"), attended))
    seen = norm(g, w.at("layernorm_after"), x, eps)
    act = config.text("hidden_act", "gelu")
    return g.op("Add", x, mlp(g, w.at("intermediate.dense"), act, w.at("output.dense"), seen))


def _states(g: Graph, config: Config) -> None:
    w = Weights(g).first_of("vit", "deit", "")
    tokens, x = _encode(g, config, w)
    image_states(g, tokens, x)
    if w.has_any("pooler"):
        dense = w.at("pooler.dense")
        pooled = linear(g, dense, tokens.at(x, _CLASS))
        pooled = activation(g, config.text("pooler_act", "tanh"), pooled)
        image_output(g, "pooler_output", pooled, dense.shape("weight")[0])


def _classes(g: Graph, config: Config) -> None:
    tokens, x = _encode(g, config, Weights(g).first_of("vit", "deit"))
    image_classes(g, "logits", Weights(g).at("classifier"), tokens.at(x, _CLASS))


def _classes_with_teacher(g: Graph, config: Config) -> None:
    """What each of the two tokens says, and the mean of it."""
    tokens, x = _encode(g, config, Weights(g).at("deit"))
    w = Weights(g).at("cls_classifier")
    first = image_classes(g, "cls_logits", w, tokens.at(x, _CLASS))
    taught = Weights(g).at("distillation_classifier")
    second = image_classes(g, "distillation_logits", taught, tokens.at(x, _DISTILLATION))
    image_output(g, "logits", g.op("Mean", first, second), w.shape("weight")[0])


_DEIT: Final = Family(
    "deit",
    {
        "DeiTModel": _states,
        "DeiTForImageClassification": _classes,
        "DeiTForImageClassificationWithTeacher": _classes_with_teacher,
    },
)

FAMILIES: Final = (
    Family("vit", {"ViTModel": _states, "ViTForImageClassification": _classes}),
    _DEIT,
)
