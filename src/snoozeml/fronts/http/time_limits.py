"""How long a client is willing to wait, wherever in a request it says so."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from snoozeml.errors import InvalidInput
from snoozeml.fronts.http.request import Request
from snoozeml.fronts.manners import LONGEST_TIMEOUT_MS


class _V1(msgspec.Struct):
    """The only part of a body of `/v1` that the daemon looks at."""

    timeout_ms: Any = None


class _Parameters(msgspec.Struct):
    timeout: Any = None


class _V2(msgspec.Struct):
    """The only part of a body of `/v2` that the daemon looks at."""

    parameters: _Parameters | None = None


class TimeLimits:
    """Finds the time limit in bodies of one dialect.

    Args:
        key: what a body calls it.
        form: the struct of the part of a body that has it, and nothing else.
        given: what such a part says.
        per_ms: its units in a millisecond.
    """

    def __init__(
        self, key: str, form: type[Any], given: Callable[[Any], Any], *, per_ms: int
    ) -> None:
        self._key: Final = key
        self._quoted: Final = f'"{key}"'.encode()
        self._plain: Final = re.compile(self._quoted + rb"\s*:\s*([0-9]+(?:\.[0-9]+)?)")
        self._decode: Final = msgspec.json.Decoder(form).decode
        self._given: Final = given
        self._per_ms: Final = per_ms

    def asked_for(self, request: Request, text: Sequence[bytes]) -> float | None:
        """The limit that a client asks for, in seconds; the shorter one where it names two.

        Args:
            text: the JSON of the body, in pieces.

        Raises:
            InvalidInput: it is not a positive number.
        """
        # Looking for the key is far cheaper than parsing a body in which it almost never is.
        mentioned = _mentions(self._quoted, text)
        if not mentioned and request.timeout_ms is None:
            return None
        limits_s: list[float] = []
        if request.timeout_ms is not None:
            given = request.timeout_ms.decode("latin-1")
            limits_s.append(_seconds("header X-Request-Timeout-Ms", given, 1))
        if mentioned and (found := self._peek(b"".join(text))) is not None:
            limits_s.append(_seconds(self._key, found, self._per_ms))
        return min(limits_s, default=None)

    def _peek(self, text: bytes) -> Any:
        """What a body says about it; None where it says nothing or cannot be read."""
        try:
            return self._given(self._decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Not JSON, which the worker will tell; or JSON with NaN in it, which it will accept.
            plain = self._plain.search(text)
            return float(plain[1]) if plain is not None else None


def _mentions(word: bytes, pieces: Sequence[bytes]) -> bool:
    """Whether a word stands in a text, of which 60 MiB need not be put together for that."""
    length, seam = len(word), b""
    for piece in pieces:
        if word in piece or (seam and word in seam + piece[:length]):
            return True
        seam = (seam + piece[-length:])[-length:]
    return False


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


IN_V1: Final = TimeLimits("timeout_ms", _V1, lambda body: body.timeout_ms, per_ms=1)
IN_V2: Final = TimeLimits("timeout", _V2, _timeout_in_v2, per_ms=1000)
