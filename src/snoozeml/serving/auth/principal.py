"""Somebody whom we know, and what there is to do."""

import re
from collections.abc import Iterable
from enum import Enum, auto
from fnmatch import translate
from typing import Final

from msgspec import Struct

from snoozeml.core.roles import Role


class Action(Enum):
    """What a request wants to do, as far as that decides who may."""

    PUBLIC = auto()
    READONLY = auto()
    INFERENCE = auto()
    ADMIN = auto()
    METRICS = auto()
    """ADMIN where metrics are protected, otherwise PUBLIC."""


class Principal(Struct, frozen=True):
    """Somebody whom we know.

    Attributes:
        name: for messages and the log; never a secret.
        models: what the ids of those models look like that it may see; None: all of them.
    """

    name: str
    role: Role
    models: re.Pattern[str] | None = None

    def may_use(self, model_id: str) -> bool:
        return self.models is None or self.models.fullmatch(model_id) is not None


NOBODY: Final = Principal("nobody", Role.READONLY, re.compile(r"(?!)"))
"""Whoever asks what is public without saying who he is; no model is his to see."""

ANYBODY: Final = Principal("anybody", Role.ADMIN)
"""Whoever asks while authorisation is off."""


def matching(patterns: Iterable[str]) -> re.Pattern[str]:
    """What fits any of some patterns with `*`, `?` and `[…]`; upper and lower case differ."""
    return re.compile("|".join(map(translate, patterns)))
