"""Every model that is registered, by id."""

import asyncio
from collections.abc import Iterable, Iterator

from snoozeml.config.schema import ModelConfig
from snoozeml.errors import ModelNotFound
from snoozeml.lifecycle.actor import ModelActor, Surroundings


class Registry:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._actors: dict[str, ModelActor] = {}

    def __iter__(self) -> Iterator[ModelActor]:
        return iter(self._actors.values())

    def get(self, model_id: str) -> ModelActor:
        """Find a model.

        Raises:
            ModelNotFound: none is registered under this id.
        """
        try:
            return self._actors[model_id]
        except KeyError:
            raise ModelNotFound.named(model_id) from None

    def apply(self, configs: Iterable[ModelConfig]) -> None:
        """Make the registered models equal to these: add, reconfigure, and let go.

        A model that is gone from the configuration answers what it has accepted, then leaves.
        """
        wanted = {config.id: config for config in configs}
        for model_id in self._actors.keys() - wanted.keys():
            actor = self._actors.pop(model_id)
            self._around.tasks.create_task(actor.close())
        for model_id, config in wanted.items():
            if model_id in self._actors:
                self._actors[model_id].reconfigure(config)
            else:
                self._add(config)
        self._actors = dict(sorted(self._actors.items()))

    async def close(self) -> None:
        """Let every model answer what it has accepted, and leave.

        Cancelling this leaves them closing; `kill` ends them at once.
        """
        await asyncio.gather(*(actor.close() for actor in self))

    def kill(self) -> None:
        for actor in self:
            actor.kill()

    def _add(self, config: ModelConfig) -> None:
        actor = self._actors[config.id] = ModelActor(config, self._around)
        if config.pinned:
            actor.pin_nowait()
