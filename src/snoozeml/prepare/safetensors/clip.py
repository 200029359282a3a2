"""CLIP (Radford et al. 2021, https://arxiv.org/abs/2103.00020).

A tower for texts and one for images, which meet in one space of embeddings. Each is also saved
alone. What is left out are the logits of the whole model: each of its texts meets each of its
images there, so they belong to no request of a batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from onnx import TensorProto

from snoozeml.prepare.safetensors.blocks import causal_attention, embedding, linear, mlp, norm
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
from snoozeml.prepare.safetensors.text import Tokens, text_output, token_inputs, token_output

TEXT: Final = "text"
IMAGE: Final = "image"
"""The two towers, as groups of inputs and outputs."""

Attend = Callable[[Value, Value, Value], Value]
"""Attention within texts or images. Shapes: queries, keys, values, returns: (rows, features)"""

_DEFAULTS: Final = {
    "num_hidden_layers": 12,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
_TEXT_DEFAULTS: Final = _DEFAULTS | {
    "vocab_size": 49408,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "eos_token_id": 49407,
}
_IMAGE_DEFAULTS: Final = _DEFAULTS | {
    "hidden_size": 768,
    "num_attention_heads": 12,
}
_CLASS: Final = 0  # the class token's place
_WRONG_END: Final = 2  # in configurations older than the rule by which texts end


class _Texts(NamedTuple):
    """Shapes: hidden: (tokens, features); pooled: (batch, features)"""

    tokens: Tokens
    hidden: Value
    pooled: Value
    features: int


class _Images(NamedTuple):
    """Shapes: hidden: (batch * tokens, features); pooled: (batch, features)"""

    tokens: Sequences
    hidden: Value
    pooled: Value


def tower(g: Graph, config: Config, w: Weights, attend: Attend, x: Value) -> Value:
    """All layers of an encoder. Shapes: x, returns: (rows, features)

    Args:
        config: complete.
    """
    for index in range(config.size("num_hidden_layers")):
        x = _layer(g, config, w.at(f"encoder.layers.{index}"), attend, x)
    return x


def _layer(g: Graph, config: Config, w: Weights, attend: Attend, x: Value) -> Value:
    eps = config.number("layer_norm_eps")
    seen = norm(g, w.at("layer_norm1"), x, eps)
    q, k, v = (linear(g, w.at(f"self_attn.{part}_proj"), seen) for part in "qkv")
    x = g.op("Add", x, linear(g, w.at("self_attn.out_proj"), attend(q, k, v)))
    seen = norm(g, w.at("layer_norm2"), x, eps)
    act = config.text("hidden_act")
    return g.op("Add", x, mlp(g, w.at("mlp.fc1"), act, w.at("mlp.fc2"), seen))


def _text_tower(g: Graph, config: Config, w: Weights, group: str | None = None) -> _Texts:
    config = config.completed(_TEXT_DEFAULTS)
    longest = config.size("max_position_embeddings")
    tokens = token_inputs(g, config, max_length=longest, group=group)
    words = embedding(g, w.at("embeddings.token_embedding"), tokens.ids)
    places = embedding(g, w.at("embeddings.position_embedding"), tokens.columns)
    attend = _reading(g, tokens, config.size("num_attention_heads"), config.size("hidden_size"))
    x = tower(g, config, w, attend, g.op("Add", words, places))
    x = norm(g, w.at("final_layer_norm"), x, config.number("layer_norm_eps"))
    return _Texts(tokens, x, tokens.at(x, _ends(g, config, tokens)), config.size("hidden_size"))


def _reading(g: Graph, tokens: Tokens, heads: int, features: int) -> Attend:
    """Attention of tokens to those before them."""

    def attend(q: Value, k: Value, v: Value) -> Value:
        q, k, v = (tokens.pad(x) for x in (q, k, v))
        mixed = causal_attention(g, q, k, v, heads=heads, key_mask=tokens.key_mask)
        return tokens.pack(mixed, features)

    return attend


def _ends(g: Graph, config: Config, tokens: Tokens) -> Value:
    """Where each text ends: at its first end token, which older models have as their last word.

    Shapes:
        returns: int64 (batch, 1)
    """
    end = config.integer("eos_token_id")
    ids = tokens.input_ids
    if end != _WRONG_END:
        ids = g.op("Equal", ids, g.constant(end, np.int64))
    seen = g.op("Mul", g.op("Cast", ids, to=TensorProto.INT32), tokens.key_mask)
    return g.op("ArgMax", seen, axis=1, keepdims=1)


def _image_tower(g: Graph, config: Config, w: Weights, group: str | None = None) -> _Images:
    config = config.completed(_IMAGE_DEFAULTS)
    embeddings, eps = w.at("embeddings"), config.number("layer_norm_eps")
    pixels = image_input(g, config, group)
    x = patches(g, embeddings.at("patch_embedding"), pixels)
    x = preceded(g, x, embeddings["class_embedding"])
    places = embeddings.at("position_embedding")
    tokens = Sequences(g, g.op("Add", x, places["weight"]), *places.shape("weight"))
    attend = partial(tokens.attend, heads=config.size("num_attention_heads"))
    x = tower(g, config, w, attend, norm(g, w.at("pre_layrnorm"), tokens.rows, eps))
    return _Images(tokens, x, norm(g, w.at("post_layernorm"), tokens.at(x, _CLASS), eps))


def _text_states(g: Graph, config: Config) -> None:
    texts = _text_tower(g, config, Weights(g).first_of("text_model", ""))
    token_output(g, "last_hidden_state", texts.tokens, texts.hidden, texts.features)
    text_output(g, "pooler_output", texts.pooled, texts.features)


def _projected_text(g: Graph, config: Config) -> None:
    texts = _text_tower(g, config, Weights(g).at("text_model"))
    token_output(g, "last_hidden_state", texts.tokens, texts.hidden, texts.features)
    w = Weights(g).at("text_projection")
    text_output(g, "text_embeds", linear(g, w, texts.pooled), w.shape("weight")[0])


def _image_states(g: Graph, config: Config) -> None:
    images = _image_tower(g, config, Weights(g).first_of("vision_model", ""))
    image_states(g, images.tokens, images.hidden)
    image_output(g, "pooler_output", images.pooled, images.tokens.features)


def _projected_image(g: Graph, config: Config) -> None:
    images = _image_tower(g, config, Weights(g).at("vision_model"))
    image_states(g, images.tokens, images.hidden)
    w = Weights(g).at("visual_projection")
    image_output(g, "image_embeds", linear(g, w, images.pooled), w.shape("weight")[0])


def _classes(g: Graph, config: Config) -> None:
    """`logits`, from the mean of the patches."""
    settings = tower_settings(config, "vision")
    images = _image_tower(g, settings, Weights(g).at("vision_model"))
    mean = images.tokens.mean(images.hidden, start=_CLASS + 1)
    image_classes(g, "logits", Weights(g).at("classifier"), mean)


def _both(g: Graph, config: Config) -> None:
    """`text_embeds` and `image_embeds`, each of length 1."""
    w = Weights(g)
    texts = _text_tower(g, tower_settings(config, "text"), w.at("text_model"), TEXT)
    text = w.at("text_projection")
    embeds = unit(g, linear(g, text, texts.pooled))
    text_output(g, "text_embeds", embeds, text.shape("weight")[0], TEXT)
    images = _image_tower(g, tower_settings(config, "vision"), w.at("vision_model"), IMAGE)
    image = w.at("visual_projection")
    embeds = unit(g, linear(g, image, images.pooled))
    image_output(g, "image_embeds", embeds, image.shape("weight")[0], IMAGE)


def tower_settings(config: Config, name: str) -> Config:
    """Older configurations have a second section, which counts where it is there."""
    second = f"{name}_config_dict"
    return config.section(second if second in config else f"{name}_config")


def unit(g: Graph, x: Value) -> Value:
    """Vectors made 1 long. Shapes: x, returns: (rows, features)"""
    return g.op("LpNormalization", x, axis=-1, p=2)


_TEXTS: Final = {"CLIPTextModel": _text_states, "CLIPTextModelWithProjection": _projected_text}
_IMAGES: Final = {
    "CLIPVisionModel": _image_states,
    "CLIPVisionModelWithProjection": _projected_image,
}

FAMILIES: Final = (
    Family("clip", {"CLIPModel": _both, "CLIPForImageClassification": _classes}),
    Family("clip_text_model", _TEXTS),
    Family("clip_vision_model", _IMAGES),
)
