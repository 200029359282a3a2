"""Why somebody is not let in, in as many kinds as are counted."""

from typing import Final

from snoozeml.errors import PermissionDenied, RateLimited, SnoozeError, Unauthenticated

UNKNOWN: Final = "the key or token is not valid"


class NoCredentials(Unauthenticated):
    """There are none."""

    def __init__(self) -> None:
        super().__init__("send a key or a token, as `Authorization: Bearer …` or as `X-API-Key: …`")


class UnclearCredentials(Unauthenticated):
    """What there is cannot be read, or may be read in several ways."""


class UnknownCredentials(Unauthenticated):
    """No key of ours, no token of ours, or not for us, or not yet."""


class ExpiredToken(Unauthenticated):
    """A token that was good once."""

    def __init__(self) -> None:
        super().__init__("the token has expired")


class RoleTooLow(PermissionDenied):
    """Good, and does not reach that far."""


class OtherModels(PermissionDenied):
    """Good, for other models."""


_REASONS: Final[dict[type[SnoozeError], str]] = {
    NoCredentials: "missing",
    UnclearCredentials: "malformed",
    UnknownCredentials: "invalid",
    ExpiredToken: "expired",
    RoleTooLow: "role",
    OtherModels: "model",
    RateLimited: "rate",
}


def reason_for(failure: SnoozeError) -> str:
    """What a failure of the authoriser is counted as; one of `AUTH_FAILURES`."""
    return _REASONS[type(failure)]
