"""Which architectures we can build, and how one is found by its configuration."""

from difflib import get_close_matches
from typing import Final

from snoozeml.errors import UnsupportedArchitecture
from snoozeml.prepare.safetensors import (
    albert,
    bert,
    clip,
    deberta,
    dinov2,
    dinov3,
    distilbert,
    electra,
    gte,
    jina,
    mlp,
    modernbert,
    mpnet,
    nomic,
    roberta,
    siglip,
    vit,
)
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.family import Build, Family

_ALL: Final = "docs/architectures.md"
_ANY_MODEL: Final = "A folder with a snooze_model.py can serve any model with Python code"

FAMILIES: Final[tuple[Family, ...]] = (
    bert.FAMILY,
    *roberta.FAMILIES,
    distilbert.FAMILY,
    mpnet.FAMILY,
    electra.FAMILY,
    albert.FAMILY,
    deberta.FAMILY,
    modernbert.FAMILY,
    nomic.FAMILY,
    *gte.FAMILIES,
    jina.FAMILY,
    *vit.FAMILIES,
    *dinov2.FAMILIES,
    dinov3.FAMILY,
    *clip.FAMILIES,
    *siglip.FAMILIES,
    mlp.FAMILY,
)


def find(config: Config) -> tuple[Family, Build]:
    """The architecture that a configuration names, else the plain one of its model type.

    Raises:
        UnsupportedArchitecture: it is none of ours.
    """
    named = config.texts("architectures")
    for family in FAMILIES:
        for name in named:
            if name in family.architectures:
                return family, family.architectures[name]
    model_type = config.text("model_type", "")
    for family in FAMILIES:
        if not named and family.model_type == model_type:
            return family, next(iter(family.architectures.values()))
    raise UnsupportedArchitecture(_refusal(named, model_type))


def _refusal(named: list[str], model_type: str) -> str:
    """Why there is no graph, what was meant perhaps, and what there is, without its many heads."""
    plain = ", ".join(next(iter(family.architectures)) for family in FAMILIES)
    ours = f"{plain}, and with the heads in {_ALL}. {_ANY_MODEL}"
    if not named and not model_type:
        where = "`architectures` or `model_type`"
        return f"config.json names no architecture, in {where}; supported: {ours}"
    known = supported() if named else [family.model_type for family in FAMILIES]
    near = [close for name in named or [model_type] for close in get_close_matches(name, known, 1)]
    meant = f"did you mean {' or '.join(near)}? Supported" if near else "supported"
    what = ", ".join(named) or model_type
    return f"the architecture {what} is not supported; {meant}: {ours}"


def supported() -> list[str]:
    """The names of all architectures."""
    return [name for family in FAMILIES for name in family.architectures]
