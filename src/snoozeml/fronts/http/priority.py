"""How urgent a request of `/v2` says it is."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from snoozeml.fronts.http.glances import Glance


class _Parameters(msgspec.Struct):
    priority: Any = None


class _V2(msgspec.Struct):
    parameters: _Parameters | None = None


def priority_in(text: Sequence[bytes]) -> int:
    """The priority that a body asks for; 0: none, or one that the worker will refuse.

    Args:
        text: the JSON of the body, in pieces.
    """
    found = _GLANCE.at(text)
    if type(found) is float and found.is_integer():  # from a body with NaN in it
        found = int(found)
    return found if type(found) is int and found > 0 else 0


_GLANCE: Final = Glance(
    "priority", _V2, lambda body: body.parameters.priority if body.parameters else None
)
