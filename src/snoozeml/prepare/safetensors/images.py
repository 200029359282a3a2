"""Images as sequences of patches: what a vision transformer takes, and how its tokens lie.

Every image of a batch has the same number of tokens, so nothing is padded: linear layers see the
tokens of all images as rows, and just around attention they are put apart again.
"""

import math
from typing import Final

import numpy as np

from snoozeml.core.tensors import Dim, TensorSpec
from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.blocks import attention, linear
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights

BATCH: Final = "images"
"""Not the symbol of texts: beside a tower of images there may be one of texts."""


class Sequences:
    """Equally long sequences of tokens.

    Args:
        x: (batch, length, features)
        length: tokens of each, or the symbol that stands for it.

    Attributes:
        rows: (batch * length, features), the tokens given.
    """

    def __init__(self, g: Graph, x: Value, length: Dim, features: int) -> None:
        self._g: Final = g
        self._shape: Final = g.op("Shape", x)
        self.length: Final = length
        self.features: Final = features
        self.rows: Final = self.join(x)

    def join(self, x: Value) -> Value:
        """Shapes: x: (batch, length, features); returns: (batch * length, features)"""
        return self._g.op("Reshape", x, self._g.ints(-1, self.features))

    def part(self, x: Value) -> Value:
        """Shapes: x: (batch * length, features); returns: (batch, length, features)"""
        return self._g.op("Reshape", x, self._shape)

    def attend(
        self, q: Value, k: Value, v: Value, *, heads: int, key_mask: Value | None = None
    ) -> Value:
        """Attention within each sequence; `key_mask` as in `blocks.attention`.

        Shapes:
            q, k, v, returns: (batch * length, features)
        """
        q, k, v = map(self.part, (q, k, v))
        return self.join(attention(self._g, q, k, v, heads=heads, key_mask=key_mask))

    def at(self, x: Value, index: int) -> Value:
        """One token of each sequence; negative indices count from the end.

        Shapes:
            x: (batch * length, features); returns: (batch, features)
        """
        return self._g.op("Gather", self.part(x), self._g.constant(index, np.int64), axis=1)

    def mean(self, x: Value, start: int = 0) -> Value:
        """The mean of each sequence's tokens from `start` on.

        Shapes:
            x: (batch * length, features); returns: (batch, features)
        """
        ints = self._g.ints
        after = self._g.op("Slice", self.part(x), ints(start), ints(_END), ints(1))
        return self._g.op("ReduceMean", after, ints(1), keepdims=0)


_LARGEST_IMAGE: Final = 1 << 26
"""Numbers, 256 MiB of them: what a wrong configuration may cost when the graph is tried."""

_END: Final = (1 << 63) - 1  # how the operator Slice spells "to the end"


def image_input(g: Graph, config: Config, group: str | None = None) -> Value:
    """Declare `pixel_values`, of the configuration's size; squares have one number there.

    Shapes:
        returns: (batch, channels, height, width)
    """
    size = config.integers("image_size") or [224]
    if len(size) > 2 or min(size) < 1:
        raise ModelFailed(f"config.json: image_size must be one or two sizes, and is {size}")
    image = (config.size("num_channels", 3), size[0], size[-1])
    if math.prod(image) > _LARGEST_IMAGE:
        raise ModelFailed(
            f"config.json: num_channels and image_size ask for images of {list(image)}, and no more"
            f" than {_LARGEST_IMAGE} numbers are supported"
        )
    return g.input(TensorSpec("pixel_values", "FP32", (BATCH, *image), batch_axis=0, group=group))


def any_image_input(g: Graph, config: Config, projection: Weights) -> Value:
    """Declare `pixel_values` of any size, in whole patches; what is left over is not seen."""
    shape = (BATCH, config.size("num_channels", 3), "height", "width")
    height, width = (_USUAL_PATCHES * side for side in projection.shape("weight")[2:])
    usual = {"height": height, "width": width}
    return g.input(TensorSpec("pixel_values", "FP32", shape, batch_axis=0), usual)


_USUAL_PATCHES: Final = 16  # along each side of the images that trials are made with


def grid_of(g: Graph, projection: Weights, pixels: Value) -> Value:
    """How many patches an image has. Shapes: returns: (2,), down and across"""
    size = g.op("Shape", pixels, start=2)
    return g.op("Div", size, g.ints(*projection.shape("weight")[2:]))


def patches(g: Graph, w: Weights, pixels: Value) -> Value:
    """A token for each patch, row by row.

    Shapes:
        pixels: (batch, channels, height, width); returns: (batch, patches, features)
    """
    features, _, *size = w.shape("weight")
    x = g.op("Conv", pixels, w["weight"], w.maybe("bias"), kernel_shape=size, strides=size)
    count = g.op("ReduceProd", g.op("Shape", x, start=2), keepdims=1)
    # -1 stands for the images: a batch may have none, which leaves nothing to infer a count from.
    x = g.op("Reshape", x, g.op("Concat", g.ints(-1, features), count, axis=0))
    return g.op("Transpose", x, perm=(0, 2, 1))


def preceded(g: Graph, x: Value, *tokens: Value) -> Value:
    """Put the same tokens before those of each image.

    Shapes:
        x: (batch, length, features); tokens: (1, any, features) or (features,)
        returns: (batch, sum of any + length, features)
    """
    batch = g.op("Concat", g.op("Shape", x, end=1), g.ints(1, 1), axis=0)
    return g.op("Concat", *(g.op("Expand", token, batch) for token in tokens), x, axis=1)


def image_states(g: Graph, tokens: Sequences, x: Value) -> None:
    """Answer with all tokens, as `last_hidden_state`. Shapes: x: (batch * length, features)"""
    shape = (BATCH, tokens.length, tokens.features)
    g.output(TensorSpec("last_hidden_state", "FP32", shape, batch_axis=0), tokens.part(x))


def image_output(g: Graph, name: str, x: Value, features: int, group: str | None = None) -> None:
    """Answer with a vector per image. Shapes: x: (batch, features)"""
    g.output(TensorSpec(name, "FP32", (BATCH, features), batch_axis=0, group=group), x)


def image_classes(g: Graph, name: str, classifier: Weights, x: Value) -> Value:
    """Answer with a score per class. Shapes: x: (batch, features); returns: (batch, classes)"""
    scores = linear(g, classifier, x)
    image_output(g, name, scores, classifier.shape("weight")[0])
    return scores
