"""What a client may do, from least to most."""

from enum import IntEnum
from typing import Final


class Role(IntEnum):
    """Each role may do whatever those below it may."""

    READONLY = 1
    INFERENCE = 2
    ADMIN = 3


SPELLINGS: Final[dict[str, Role]] = {
    "readonly": Role.READONLY,
    "read_only": Role.READONLY,
    "read": Role.READONLY,
    "ro": Role.READONLY,
    "inference": Role.INFERENCE,
    "infer": Role.INFERENCE,
    "user": Role.INFERENCE,
    "admin": Role.ADMIN,
    "administrator": Role.ADMIN,
}
"""How a role may be written, in configuration and in tokens."""
