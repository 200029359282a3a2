"""How long a client is willing to wait, wherever in a request it says so."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from snoozeml.errors import InvalidInput
from snoozeml.fronts.http.glances import Glance
from snoozeml.fronts.http.request import Request
from snoozeml.fronts.manners import LONGEST_TIMEOUT_MS


class _V1(msgspec.Struct):
    """The only part of a body of `/v1` that the daemon looks at."""

    timeout_ms: Any = None


class _Parameters(msgspec.Struct):
    timeout: Any = None


class _V2(msgspec.Struct):
    parameters: _Parameters | None = None


class TimeLimits:
    """Finds the time limit in requests of one dialect.

    Args:
        key: what a body calls it.
        glance: finds it there.
        per_ms: its units in a millisecond.
    """

    def __init__(self, key: str, glance: Glance, *, per_ms: int) -> None:
        self._key: Final = key
        self._glance: Final = glance
        self._per_ms: Final = per_ms

    def asked_for(self, request: Request, text: Sequence[bytes]) -> float | None:
        """The limit that a client asks for, in seconds; the shorter one where it names two.

        Args:
            text: the JSON of the body, in pieces.

        Raises:
            InvalidInput: it is not a positive number.
        """
        found = self._glance.at(text)
        if found is None and request.timeout_ms is None:
            return None
        limits_s: list[float] = []
        if request.timeout_ms is not None:
            given = request.timeout_ms.decode("latin-1")
            limits_s.append(_seconds("header X-Request-Timeout-Ms", given, 1))
        if found is not None:
            limits_s.append(_seconds(self._key, found, self._per_ms))
        return min(limits_s)


def _seconds(where: str, given: Any, per_ms: int) -> float:
    try:
        limit = msgspec.convert(given, type=float, strict=not isinstance(given, str))
    except msgspec.ValidationError:
        limit = 0.0
    longest = LONGEST_TIMEOUT_MS * per_ms
    if not 0 < limit <= longest:
        unit = "milliseconds" if per_ms == 1 else "microseconds"
        raise InvalidInput(
            f"{where} must be a number of {unit} above 0 and up to {longest}, not {given!r:.60}"
        )
    return limit / per_ms / 1000


def _timeout_in_v2(body: _V2) -> Any:
    asked = body.parameters.timeout if body.parameters is not None else None
    return None if asked == 0 else asked  # which is how clients of this protocol write no limit


IN_V1: Final = TimeLimits(
    "timeout_ms", Glance("timeout_ms", _V1, lambda body: body.timeout_ms), per_ms=1
)
IN_V2: Final = TimeLimits("timeout", Glance("timeout", _V2, _timeout_in_v2), per_ms=1000)
