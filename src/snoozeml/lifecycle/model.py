"""What a model is at one moment: the value that `machine.step` takes and returns."""

from enum import Enum
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from snoozeml.errors import SnoozeError
from snoozeml.lifecycle.limits import Limits


class Phase(Enum):
    """What a model is."""

    IDLE = "idle"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"
    CLOSED = "closed"


class Stage(Enum):
    """Where a replica is on its way."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPING = "stopping"


_PHASES: Final = (
    (Stage.SERVING, Phase.READY),
    (Stage.STARTING, Phase.LOADING),
    (Stage.DRAINING, Phase.DRAINING),
    (Stage.STOPPING, Phase.STOPPING),
)


class Replica(msgspec.Struct, frozen=True):
    """One worker.

    Attributes:
        number: each start takes the next one, so that news of an earlier worker can be told apart.
        since: monotonic seconds at which it came to this stage.
    """

    number: int
    stage: Stage
    since: float


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what happens next to one model.

    Attributes:
        has_work: some request is queued or in flight.
        load_wanted: somebody asked for a load while the last worker was on its way out.
        unload_wanted: somebody asked to unload while the model was loading.
        closing: no more work will come; leave as soon as what is there has been answered.
        killed: leave now, and refuse what is there.
        idle_at: monotonic seconds from which a ready model without work has been idle long enough.
        failures: loads and early crashes in a row.
        retry_at: monotonic seconds before which a failed model refuses, and does not grow.
        room_made: a neighbour has been evicted for this load, because memory ran out.
    """

    limits: Limits
    replicas: tuple[Replica, ...] = ()
    last_number: int = 0
    pinned: bool = False
    has_work: bool = False
    load_wanted: bool = False
    unload_wanted: bool = False
    closing: bool = False
    killed: bool = False
    closed: bool = False
    failed: bool = False
    idle_at: float = 0.0
    failures: int = 0
    retry_at: float = 0.0
    room_made: bool = False
    last_error: SnoozeError | None = None

    @property
    def phase(self) -> Phase:
        if self.closed:
            return Phase.CLOSED
        for stage, phase in _PHASES if self.replicas else ():  # most models sleep
            if self.at(stage):
                return phase
        return Phase.FAILED if self.failed else Phase.IDLE

    def at(self, *stages: Stage) -> tuple[Replica, ...]:
        return tuple(replica for replica in self.replicas if replica.stage in stages)

    def replica(self, number: int) -> Replica | None:
        return next((r for r in self.replicas if r.number == number), None)

    def moved(self, number: int, stage: Stage, now: float) -> Self:
        """The same with one replica at another stage."""
        replicas = (Replica(number, stage, now) if r.number == number else r for r in self.replicas)
        return replace(self, replicas=tuple(replicas))

    def without(self, number: int) -> Self:
        """The same with one replica gone."""
        return replace(self, replicas=tuple(r for r in self.replicas if r.number != number))


def may_leave_at(model: Model) -> float | None:
    """From when on another model may take this one's place; None: not as things are.

    Only a model that is ready, idle and not pinned may be evicted, and not before it has served
    for its shortest time: otherwise two models could push each other out without end.
    """
    if model.phase is not Phase.READY or model.has_work or model.pinned:
        return None
    if model.at(Stage.STARTING, Stage.DRAINING):
        return None
    newest = max(replica.since for replica in model.at(Stage.SERVING))
    return newest + model.limits.min_residency_s
