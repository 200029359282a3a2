"""A family of architectures: one encoder and the heads that it comes with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph
from snoozeml.prepare.safetensors.heads import Head
from snoozeml.prepare.safetensors.text import Encoded

Build = Callable[[Graph, Config], None]
"""Declares an architecture's inputs and outputs, and builds what is between them."""

Encode = Callable[[Graph, Config], Encoded]
"""Declares the inputs of a text encoder, and builds it without a head."""


@dataclass(frozen=True)
class Family:
    """Architectures that are saved alike.

    Attributes:
        model_type: what configurations call the family.
        architectures: by name, as configurations have it; the plain one comes first.
        encode: of families of text encoders.
        names: what the family's configurations call a setting, by its usual name.
    """

    model_type: str
    architectures: Mapping[str, Build]
    encode: Encode | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def text_family(
    model_type: str,
    encode: Encode,
    heads: Mapping[str, Head],
    names: Mapping[str, str] | None = None,
) -> Family:
    """A family of text encoders.

    Args:
        heads: by architecture.
        names: see `Family`.
    """
    architectures = {name: partial(_build, encode, head) for name, head in heads.items()}
    return Family(model_type, architectures, encode, names or {})


def _build(encode: Encode, head: Head, g: Graph, config: Config) -> None:
    head(g, config, encode(g, config))
