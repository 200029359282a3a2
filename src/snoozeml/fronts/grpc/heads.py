"""What routing needs to know of a request, read without decoding it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from snoozeml.core.names import as_model_id
from snoozeml.errors import InvalidInput
from snoozeml.fronts.manners import LONGEST_TIMEOUT_MS
from snoozeml.wire.outlines import Outlines
from snoozeml.wire.protobuf import Value, fields, number, signed, text

_KEY: Final = 1
_VALUE: Final = 2
_INT64: Final = 2
_UINT64: Final = 5


class Head(NamedTuple):
    """The head of a request.

    Attributes:
        version: of the model; empty: any.
        id: that the client gave the request; empty: none.
        timeout_s: that the request asks for itself; None: none.
        priority: see `InferenceRequest`; what is none at all the worker will refuse.
    """

    model_id: str
    version: str
    id: str
    timeout_s: float | None
    priority: int = 0


class HeadReader:
    """Reads the heads of requests; those that differ in their tensors only are read once.

    Args:
        read: reads a head; raises InvalidInput.
        tensors: numbers of the fields whose contents `read` does not look at.
    """

    def __init__(self, read: Callable[[bytes], Head], tensors: frozenset[int]) -> None:
        self._read: Final = read
        self._tensors: Final = tensors
        self._known: Final = Outlines[Head]()

    def __call__(self, body: bytes) -> Head:
        known = self._known.find(body)
        if known is not None:
            return known
        head = self._read(body)
        self._known.learn(body, lambda: (self._parts(body), head))
        return head

    def _parts(self, body: bytes) -> list[slice]:
        found = (value for field, value in fields(body) if field in self._tensors)
        return [value for value in found if isinstance(value, slice)]


def v1_heads() -> HeadReader:
    """Reads heads of `snoozeml.v1.ModelInferRequest`."""
    return HeadReader(head_of_v1, frozenset({2}))


def oip_heads() -> HeadReader:
    """Reads heads of `inference.ModelInferRequest`."""
    return HeadReader(head_of_oip, frozenset({5, 7}))


def head_of_v1(body: bytes) -> Head:
    """Read the head of a `snoozeml.v1.ModelInferRequest`.

    Raises:
        InvalidInput: it is no message, names no model, or asks for no sensible time limit.
    """
    model_id = request_id = ""
    timeout_s = None
    for field, value in fields(body):
        if field == 1:
            model_id = text(body, value)
        elif field == 3:
            timeout_s = _timeout_s("client_timeout_ms", number(value), 1000)
        elif field == 4 and (found := _entry(body, value, b"id")) is not None:
            request_id = text(body, found)
    return Head(_named("model_id", model_id), "", request_id, timeout_s)


def head_of_oip(body: bytes) -> Head:
    """Read the head of an `inference.ModelInferRequest`.

    Raises:
        InvalidInput: it is no message, names no model, or asks for no sensible time limit.
    """
    model_id = version = request_id = ""
    timeout_s, priority = None, 0
    for field, value in fields(body):
        if field == 1:
            model_id = text(body, value)
        elif field == 2:
            version = text(body, value)
        elif field == 3:
            request_id = text(body, value)
        elif field == 4 and (found := _entry(body, value, b"timeout")) is not None:
            # None asked for: 0 is how clients of this protocol write that.
            microseconds = _parameter(body, found)
            if microseconds is None:
                raise InvalidInput("parameter timeout must be a whole number of microseconds")
            timeout_s = _timeout_s("timeout", microseconds, 10**6) if microseconds else None
        elif field == 4 and (found := _entry(body, value, b"priority")) is not None:
            priority = max(0, _parameter(body, found) or 0)
    return Head(_named("model_name", model_id), version, request_id, timeout_s, priority)


def _named(field: str, model_id: str) -> str:
    if not model_id:
        raise InvalidInput(f"{field} must name a model")
    return as_model_id(model_id)


def _entry(body: bytes, value: Value, key: bytes) -> slice | None:
    """The value of an entry of a map, if it has this key."""
    if not isinstance(value, slice):
        return None
    has_key, found = False, None
    for field, part in fields(body, value):
        if field == _KEY and isinstance(part, slice):
            has_key = body[part] == key
        elif field == _VALUE and isinstance(part, slice):
            found = part
    return found if has_key else None


def _parameter(body: bytes, where: slice) -> int | None:
    """The value of a parameter; None: it is no whole number."""
    for field, value in fields(body, where):
        if field == _UINT64:
            return number(value)
        if field == _INT64:
            return signed(number(value))
    return None


def _timeout_s(name: str, given: int, per_second: int) -> float:
    longest = LONGEST_TIMEOUT_MS * per_second // 1000
    if not 0 < given <= longest:
        raise InvalidInput(f"{name} must be above 0 and up to {longest}, not {given}")
    return given / per_second
