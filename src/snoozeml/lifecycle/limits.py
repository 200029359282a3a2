"""The settings that decide what happens to a model."""

from typing import Self

import msgspec

from snoozeml.config.schema import ModelConfig


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

    @classmethod
    def of(cls, config: ModelConfig) -> Self:
        return cls(
            idle_timeout_s=config.idle_timeout_secs,
            min_residency_s=config.min_residency_secs,
            max_replicas=config.max_replicas,
        )
