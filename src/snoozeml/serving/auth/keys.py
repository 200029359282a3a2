"""API keys: known by their digests alone."""

import hashlib
import hmac
from collections.abc import Iterable

from snoozeml.config.auth_schema import ApiKey
from snoozeml.serving.auth.principal import Principal, matching
from snoozeml.serving.auth.rate import TokenBucket


class KnownKey:
    """One configured key; `bucket` is None where its rate is not limited."""

    __slots__ = ("bucket", "digest", "principal")

    def __init__(self, key: ApiKey) -> None:
        self.digest = key.digest
        models = None if key.models is None else matching(key.models)
        self.principal = Principal(key.name, key.role, models)
        rate = key.requests_per_second
        self.bucket = None if rate is None else TokenBucket(rate, key.burst)


class KeyRing:
    """All configured keys."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._keys = [KnownKey(key) for key in keys]

    def find(self, secret: bytes) -> KnownKey | None:
        """The configured key that a secret is.

        Every key is compared, and each in constant time: how long this takes tells nothing of how
        near a guess has come. What is compared are digests, so a guess could not be steered anyway.
        """
        digest = hashlib.sha256(secret).digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found
