"""Decides whether a request may do what it wants."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from snoozeml.config.auth_schema import AuthConfig
from snoozeml.core.roles import Role
from snoozeml.errors import PermissionDenied, RateLimited, Unauthenticated
from snoozeml.serving.auth.credentials import Credentials, secret_in
from snoozeml.serving.auth.failures import (
    UNKNOWN,
    OtherModels,
    RoleTooLow,
    UnknownCredentials,
    reason_for,
)
from snoozeml.serving.auth.keys import KeyRing
from snoozeml.serving.auth.principal import ANYBODY, NOBODY, Action, Principal
from snoozeml.telemetry.metrics import AUTH_FAILURES

if TYPE_CHECKING:
    from snoozeml.serving.auth.tokens import TokenVerifier

_NEEDED: Final = {
    Action.READONLY: Role.READONLY,
    Action.INFERENCE: Role.INFERENCE,
    Action.ADMIN: Role.ADMIN,
    Action.METRICS: Role.ADMIN,
}


class Authoriser:
    """The one authoriser of all transports; `apply` changes its mind while they use it.

    Args:
        clock: seconds that never go back, for rates.

    Attributes:
        failures: how many have been refused, by `AUTH_FAILURES`.
    """

    def __init__(self, config: AuthConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.failures = dict.fromkeys(AUTH_FAILURES, 0)
        self.apply(config)

    def apply(self, config: AuthConfig) -> None:
        """From now on, ask for what this configuration says. Rates start afresh."""
        self._public = frozenset({Action.PUBLIC} if config.enabled else Action)
        self._protects_metrics = config.protect_metrics
        self._keys = KeyRing(config.api_keys)
        self._tokens = _verifier(config)

    def check(
        self, credentials: Credentials, action: Action, model_id: str | None = None
    ) -> Principal:
        """Let a request pass, or say why not.

        To be asked before anything else is looked at, so that whoever has no credentials cannot
        learn which models there are.

        Args:
            model_id: the model that the request is about, if it is about one; it need not exist.

        Raises:
            Unauthenticated: it is unknown who asks.
            PermissionDenied: it is known, and may not do this.
            RateLimited: too soon.
        """
        try:
            return self._check(credentials, action, model_id)
        except (Unauthenticated, PermissionDenied, RateLimited) as error:
            self.failures[reason_for(error)] += 1
            raise

    def _check(self, credentials: Credentials, action: Action, model_id: str | None) -> Principal:
        if action in self._public:
            return ANYBODY
        if action is Action.METRICS and not self._protects_metrics:
            return self._passer_by(credentials)
        secret = secret_in(credentials)
        key = self._keys.find(secret)
        principal = self._bearer(secret) if key is None else key.principal
        _check_reach(principal, action, model_id)
        if key is not None and key.bucket is not None:
            wait_s = key.bucket.take(self._clock())
            if wait_s:
                raise RateLimited(
                    f"{principal.name} makes more requests than it may", retry_after_s=wait_s
                )
        return principal

    def _passer_by(self, credentials: Credentials) -> Principal:
        """Somebody who need not say who he is; if he does, he sees the models that he may see."""
        try:
            return self._check(credentials, Action.READONLY, None)
        except (Unauthenticated, PermissionDenied):
            return NOBODY

    def _bearer(self, secret: bytes) -> Principal:
        if self._tokens is None or secret.count(b".") != 2:  # as every signed token has
            raise UnknownCredentials(UNKNOWN)
        return self._tokens.verify(secret)


def _verifier(config: AuthConfig) -> "TokenVerifier | None":
    if config.jwt is None:
        return None
    from snoozeml.serving.auth.tokens import TokenVerifier  # costs megabytes; few use tokens

    return TokenVerifier(config.jwt)


def _check_reach(principal: Principal, action: Action, model_id: str | None) -> None:
    needed = _NEEDED[action]
    if principal.role < needed:
        has, wants = principal.role.name.lower(), needed.name.lower()
        raise RoleTooLow(f"{principal.name} has the role {has}; this needs {wants}")
    if model_id is None:
        # What concerns the daemon as a whole also concerns models that this key may not even see.
        if principal.models is not None and needed is Role.ADMIN:
            raise OtherModels(f"{principal.name} is for some models only; this is for all")
    elif not principal.may_use(model_id):
        raise OtherModels(f"{principal.name} is not for the model {model_id}")
