"""The one table from failure to gRPC status, and what goes with it."""

import logging
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from snoozeml.errors import Internal, SnoozeError
from snoozeml.fronts.grpc.calls import Call, Failure
from snoozeml.fronts.manners import new_request_id, retry_after, usable_request_id

_log = logging.getLogger("snoozeml.grpc")

_CANCELLED: Final = 1
_INVALID_ARGUMENT: Final = 3
_DEADLINE_EXCEEDED: Final = 4
_NOT_FOUND: Final = 5
_PERMISSION_DENIED: Final = 7
_RESOURCE_EXHAUSTED: Final = 8
_UNIMPLEMENTED: Final = 12
_INTERNAL: Final = 13
_UNAVAILABLE: Final = 14
_UNAUTHENTICATED: Final = 16

STATUS: Final[Mapping[str, int]] = {
    "invalid_input": _INVALID_ARGUMENT,
    "shape_mismatch": _INVALID_ARGUMENT,
    "unauthenticated": _UNAUTHENTICATED,
    "permission_denied": _PERMISSION_DENIED,
    "rate_limited": _RESOURCE_EXHAUSTED,
    "not_found": _NOT_FOUND,
    "model_not_found": _NOT_FOUND,
    "not_supported": _UNIMPLEMENTED,
    "method_not_allowed": _UNIMPLEMENTED,
    "request_timeout": _DEADLINE_EXCEEDED,
    "payload_too_large": _RESOURCE_EXHAUSTED,
    "unsupported_media_type": _INVALID_ARGUMENT,
    "head_too_large": _RESOURCE_EXHAUSTED,
    "cancelled": _CANCELLED,
    "inference_failed": _INTERNAL,
    "internal": _INTERNAL,
    "overloaded": _RESOURCE_EXHAUSTED,
    "model_loading": _UNAVAILABLE,
    "out_of_memory": _RESOURCE_EXHAUSTED,
    "worker_crashed": _UNAVAILABLE,
    "model_failed": _UNAVAILABLE,
    "unsupported_architecture": _UNIMPLEMENTED,
    "shutting_down": _UNAVAILABLE,
    "deadline_exceeded": _DEADLINE_EXCEEDED,
}


_LONGEST_MESSAGE: Final = 4096
"""Bytes, as gRPC writes it into a header. Clients commonly take no more than 8 KiB of trailers, and
report that instead of what those say."""

_MOST_OF_A_CHAR: Final = 12  # of these bytes: four in UTF-8
_CUT: Final = "…"


def request_id_of(call: Call) -> str | None:
    """The id that the client has given its call, if it can be used."""
    given = call.get("x-request-id")
    return given.decode() if given is not None and usable_request_id(given) else None


def failure_of(error: Exception, call: Call) -> Failure:
    """How a call ends on an exception; one without a name is logged under an id for the client."""
    request_id = request_id_of(call) or new_request_id()
    if not isinstance(error, SnoozeError):
        fields = {"request_id": request_id}
        _log.error("call failed", exc_info=error, extra={"fields": fields})
        error = Internal(f"internal error; see the log: {request_id}")
    elif _log.isEnabledFor(logging.DEBUG):
        fields = {"request_id": request_id, "code": error.code, "message": error.message}
        _log.debug("refused", extra={"fields": fields})
    trailing: list[tuple[str, str | bytes]] = [
        ("x-request-id", request_id),
        ("x-snooze-code", error.code),
    ]
    if (seconds := retry_after(error)) is not None:
        trailing.append(("retry-after", str(seconds)))
    return Failure(STATUS[error.code], _fitting(error.message), trailing)


def _fitting(message: str) -> str:
    """The message, cut where it would be too long in a header."""
    if len(message) <= _LONGEST_MESSAGE // _MOST_OF_A_CHAR:  # as most are
        return message
    ends = list(accumulate(map(_header_bytes, message)))
    if ends[-1] <= _LONGEST_MESSAGE:
        return message
    return message[: bisect_right(ends, _LONGEST_MESSAGE - _header_bytes(_CUT))] + _CUT


def _header_bytes(char: str) -> int:
    """Each byte of UTF-8 takes three, as `%E2`, unless it is printable ASCII."""
    return 1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode())
