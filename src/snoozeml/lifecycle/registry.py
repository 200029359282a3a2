"""Every model that is registered, by id."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Final, NamedTuple

from snoozeml.config.loading import ConfigError
from snoozeml.config.schema import ModelConfig
from snoozeml.errors import ModelNotFound, OutOfMemory, Overloaded
from snoozeml.lifecycle.actor import ModelActor
from snoozeml.lifecycle.crew import Surroundings
from snoozeml.lifecycle.footprints import Footprints
from snoozeml.lifecycle.pools import Pools, limit_name
from snoozeml.lifecycle.residency import total

MaySee = Callable[[str], bool]

_MOST_COMPARED: Final = 200  # models; comparing takes some 10 µs each on the event loop


def check_pinned(
    configs: Iterable[ModelConfig], footprints: Footprints, pools: Pools, *, models: int
) -> None:
    """See whether all pinned models can be in memory together.

    Raises:
        ConfigError: they cannot; names them and the limit.
    """
    pinned = [config for config in configs if config.pinned]
    names = ", ".join(config.id for config in pinned)
    if len(pinned) > models:
        raise ConfigError(
            f"{len(pinned)} models are pinned, but max_loaded_models is {models}: {names}; raise "
            "the limit or pin fewer"
        )
    needs = {config.id: footprints.expected(config) for config in pinned}
    for where, needed_bytes in total(needs.values()).items():
        pool = pools.pool(where)
        if pool is not None and needed_bytes > pool.limit_bytes:
            names = ", ".join(model_id for model_id, sizes in needs.items() if where in sizes)
            raise ConfigError(
                f"the pinned models need about {needed_bytes >> 20} MiB together, but "
                f"{limit_name(where)} is {pool.limit_bytes >> 20} MiB: {names}; raise the limit or "
                "pin fewer"
            )


class Changes(NamedTuple):
    """Ids of models that have come, gone, or have other settings or content now."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class Registry:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._actors: dict[str, ModelActor] = {}
        self._unlisted: set[ModelActor] = set()

    def tenants(self) -> Iterator[ModelActor]:
        """Every model that may take memory, those on their way in or out included."""
        yield from self._actors.values()
        yield from self._unlisted

    def unlisted(self) -> Iterator[ModelActor]:
        """Those that are not registered, and have not left yet."""
        return iter(self._unlisted)

    def __iter__(self) -> Iterator[ModelActor]:
        return iter(self._actors.values())

    def get(self, model_id: str, may_see: MaySee | None = None) -> ModelActor:
        """Find a model.

        Args:
            may_see: of which models whoever asks may learn that they are there; None: of none.

        Raises:
            ModelNotFound: none is registered under this id; names the nearest one that there is.
        """
        try:
            return self._actors[model_id]
        except KeyError:
            meant = None if may_see is None else self._nearest(model_id, may_see)
            raise ModelNotFound.named(model_id, meant) from None

    def _nearest(self, model_id: str, may_see: MaySee) -> str | None:
        """The id that may have been meant; of so many models only that a typo costs no time."""
        known = islice(filter(may_see, self._actors), _MOST_COMPARED)
        return next(iter(get_close_matches(model_id, known, n=1)), None)

    def apply(self, configs: Iterable[ModelConfig]) -> Changes:
        """Make the registered models equal to these: add, reconfigure, and let go.

        A model that is gone from the configuration answers what it has accepted, then leaves.
        """
        wanted = {config.id: config for config in configs}
        removed, added = sorted(self._actors.keys() - wanted), sorted(wanted.keys() - self._actors)
        for model_id in removed:
            self.let_go(self._actors.pop(model_id))
        changed = [id_ for id_, actor in self._actors.items() if actor.reconfigure(wanted[id_])]
        for model_id in added:
            self._add(wanted[model_id])
        self._actors = dict(sorted(self._actors.items()))
        return Changes(added, removed, changed)

    async def awake(self, config: ModelConfig) -> ModelActor | None:
        """Another version of a model, loaded beside the one that serves; None: no room for both.

        Raises:
            SnoozeError: it cannot be loaded.
        """
        successor = ModelActor(config, self._around)
        successor.crew.is_beside = True
        self._unlisted.add(successor)
        try:
            await successor.load()
        except BaseException as error:
            self.let_go(successor)
            if isinstance(error, (Overloaded, OutOfMemory)):
                return None
            raise
        return successor

    def hand_over(self, successor: ModelActor) -> None:
        """New requests go to the successor, which counts anew; the one before answers its own."""
        before = self._actors[successor.config.id]
        if before.pinned:
            successor.pin_nowait()
        successor.last_accessed = before.last_accessed
        successor.crew.is_beside = False
        self._unlisted.remove(successor)
        self._actors[successor.config.id] = successor
        self.let_go(before)

    def let_go(self, actor: ModelActor) -> None:
        """Let a model that is not listed any more answer what it has accepted, and leave."""
        self._unlisted.add(actor)
        self._around.tasks.create_task(self._see_off(actor))

    async def close(self) -> None:
        """Let every model answer what it has accepted, and leave.

        Cancelling this leaves them closing; `kill` ends them at once.
        """
        await asyncio.gather(*(actor.close() for actor in self.tenants()))

    def kill(self) -> None:
        for actor in list(self.tenants()):
            actor.kill()

    async def _see_off(self, actor: ModelActor) -> None:
        await actor.close()
        self._unlisted.remove(actor)
        self._around.totals.take_over(actor.statistics)

    def _add(self, config: ModelConfig) -> None:
        actor = self._actors[config.id] = ModelActor(config, self._around)
        if config.pinned:
            actor.pin_nowait()
