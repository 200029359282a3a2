"""The settings that decide what happens to a model."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What `machine.step` goes by.

    Attributes:
        idle_timeout_s: unload after this long without work; 0 means never.
        min_residency_s: a replica serves at least this long before others may take its place.
        max_replicas: how many may serve at once.
    """

    idle_timeout_s: float
    min_residency_s: float = 0.0
    max_replicas: int = 1
