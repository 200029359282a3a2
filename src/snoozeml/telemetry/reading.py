"""What is to be read at one moment, rather than counted."""

from collections.abc import Sequence
from typing import Final

import msgspec

from snoozeml.telemetry.statistics import ModelStatistics

STATES: Final = ("idle", "loading", "ready", "busy", "failed")


class ModelReading(msgspec.Struct, frozen=True, kw_only=True):
    """One model.

    Attributes:
        state: one of `STATES`.
        replicas: workers that are ready.
        memory_bytes: what they take, each page that several share in equal parts.
        vram_bytes: what they take of a device's own memory; None: they run on none, or nobody says.
    """

    model_id: str
    statistics: ModelStatistics
    state: str
    replicas: int
    queue_depth: int
    memory_bytes: int
    vram_bytes: int | None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon.

    Attributes:
        models: all that are registered, by id.
        leaving: those that are not any more, and whose last workers are still on their way out.
    """

    models: Sequence[ModelReading]
    leaving: Sequence[ModelReading]
    models_limit: int
    memory_limit_bytes: int
