"""SigLIP (Zhai et al. 2023, https://arxiv.org/abs/2303.15343), and SigLIP 2 at a fixed size.

Like CLIP, with other ends of the towers. A text's embedding is that of its last token, padding
included: texts are padded to the configured length, and no mask hides the padding.
"""

from functools import partial
from typing import Final

from onnx import TensorProto

from snoozeml.core.tensors import TensorSpec
from snoozeml.prepare.safetensors.blocks import attention, embedding, linear, mlp, norm
from snoozeml.prepare.safetensors.clip import IMAGE, TEXT, tower, unit
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
)
from snoozeml.prepare.safetensors.text import text_output

_LAST: Final = -1  # the place of a text's last token
_DEFAULTS: Final = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
_TEXT_DEFAULTS: Final = _DEFAULTS | {"vocab_size": 32000, "max_position_embeddings": 64}


def _text_tower(
    g: Graph, config: Config, w: Weights, group: str | None = None
) -> tuple[Sequences, Value]:
    """Shapes: returns: (batch * length, features)"""
    config = config.completed(_TEXT_DEFAULTS)
    ids, mask = _text_inputs(g, config, group)
    words = embedding(g, w.at("embeddings.token_embedding"), ids)
    places = w.at("embeddings.position_embedding")
    tokens = Sequences(g, g.op("Add", words, places["weight"]), *places.shape("weight"))
    heads = config.size("num_attention_heads")
    x = tower(g, config, w, partial(tokens.attend, heads=heads, key_mask=mask), tokens.rows)
    return tokens, norm(g, w.at("final_layer_norm"), x, config.number("layer_norm_eps"))


def _text_inputs(g: Graph, config: Config, group: str | None) -> tuple[Value, Value]:
    """Token ids, and a mask for attention."""
    shape = ("batch", config.size("max_position_embeddings"))
    words = (0, config.size("vocab_size"))
    ids = TensorSpec("input_ids", "INT64", shape, 0, bounds=words, group=group)
    mask = TensorSpec(
        "attention_mask", "INT64", shape, 0, bounds=(0, 2), default="ones", group=group
    )
    return g.input(ids), g.op("Cast", g.input(mask), to=TensorProto.INT32)


def _image_tower(
    g: Graph, config: Config, w: Weights, group: str | None = None
) -> tuple[Sequences, Value]:
    """Shapes: returns: (batch * patches, features)"""
    config = config.completed(_DEFAULTS)
    embeddings = w.at("embeddings")
    x = patches(g, embeddings.at("patch_embedding"), image_input(g, config, group))
    places = embeddings.at("position_embedding")
    tokens = Sequences(g, g.op("Add", x, places["weight"]), *places.shape("weight"))
    attend = partial(tokens.attend, heads=config.size("num_attention_heads"))
    x = tower(g, config, w, attend, tokens.rows)
    return tokens, norm(g, w.at("post_layernorm"), x, config.number("layer_norm_eps"))


def _pool(g: Graph, config: Config, w: Weights, tokens: Sequences, x: Value) -> Value:
    """Attention of one learned query to each image's tokens. Shapes: returns: (batch, features)"""
    config = config.completed(_DEFAULTS)
    _, k, v = map(tokens.part, _projected(g, w.at("attention"), x))
    probe, _, _ = _projected(g, w.at("attention"), g.op("Squeeze", w["probe"], g.ints(0)))
    alone = g.op("Concat", g.op("Shape", k, end=1), g.ints(1, tokens.features), axis=0)
    heads = config.size("num_attention_heads")
    x = attention(g, g.op("Expand", probe, alone), k, v, heads=heads)
    x = linear(g, w.at("attention.out_proj"), g.op("Squeeze", x, g.ints(1)))
    seen = norm(g, w.at("layernorm"), x, config.number("layer_norm_eps"))
    act = config.text("hidden_act")
    return g.op("Add", x, mlp(g, w.at("mlp.fc1"), act, w.at("mlp.fc2"), seen))


def _projected(g: Graph, w: Weights, x: Value) -> list[Value]:
    """Query, key and value, whose weights are one tensor here.

    Asking for all three where one or two are needed spares a copy of the weights.
    """
    joined = g.op("Gemm", x, w["in_proj_weight"], w["in_proj_bias"], transB=1)
    return g.ops("Split", (joined,), 3, axis=-1, num_outputs=3)


def _text_states(g: Graph, config: Config) -> None:
    w = Weights(g).first_of("text_model", "")
    tokens, x = _text_tower(g, config, w)
    shape = ("batch", tokens.length, tokens.features)
    g.output(TensorSpec("last_hidden_state", "FP32", shape, batch_axis=0), tokens.part(x))
    head = w.at("head")
    text_output(g, "pooler_output", linear(g, head, tokens.at(x, _LAST)), head.shape("weight")[0])


def _image_states(g: Graph, config: Config) -> None:
    w = Weights(g).first_of("vision_model", "")
    tokens, x = _image_tower(g, config, w)
    image_states(g, tokens, x)
    if config.flag("vision_use_head", True):
        image_output(g, "pooler_output", _pool(g, config, w.at("head"), tokens, x), tokens.features)


def _classes(g: Graph, config: Config) -> None:
    """`logits`, from the mean of the patches."""
    w = Weights(g)
    tokens, x = _image_tower(g, config.section("vision_config"), w.at("vision_model"))
    image_classes(g, "logits", w.at("classifier"), tokens.mean(x))


def _both(g: Graph, config: Config) -> None:
    """`text_embeds` and `image_embeds`, each of length 1."""
    w = Weights(g).at("text_model")
    tokens, x = _text_tower(g, config.section("text_config"), w, TEXT)
    head = w.at("head")
    embeds = unit(g, linear(g, head, tokens.at(x, _LAST)))
    text_output(g, "text_embeds", embeds, head.shape("weight")[0], TEXT)

    w, vision = Weights(g).at("vision_model"), config.section("vision_config")
    tokens, x = _image_tower(g, vision, w, IMAGE)
    embeds = unit(g, _pool(g, vision, w.at("head"), tokens, x))
    image_output(g, "image_embeds", embeds, tokens.features, IMAGE)


FAMILIES: Final = (
    Family("siglip", {"SiglipModel": _both, "SiglipForImageClassification": _classes}),
    Family("siglip_text_model", {"SiglipTextModel": _text_states}),
    Family("siglip_vision_model", {"SiglipVisionModel": _image_states}),
)
