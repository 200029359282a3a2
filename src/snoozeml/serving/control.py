"""What an administrator can ask of models, and how a model is described."""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from snoozeml.config.loading import ConfigError
from snoozeml.config.schema import Configuration, ServerConfig, waits_for_restart
from snoozeml.core.tensors import TensorSpec
from snoozeml.errors import InvalidInput, ShuttingDown
from snoozeml.lifecycle.actor import ModelActor
from snoozeml.lifecycle.registry import Changes, MaySee, Registry
from snoozeml.serving.inference import Serving
from snoozeml.serving.orphans import remove_orphans

_log = logging.getLogger("snoozeml.models")


class TensorView(msgspec.Struct):
    """One input or output as clients see it; -1 stands for a size that may vary."""

    name: str
    datatype: str
    shape: list[int]


class ModelView(msgspec.Struct, kw_only=True):
    """One model as clients see it.

    Attributes:
        onnx_path: the model's path, whatever its format; the name is older than the formats.
        vram_bytes: None where nobody says; 0 where the device has no memory of its own.
        waits_for: why its load waits for room; None: it does not.
        inputs, outputs: None until the model has been prepared once.
    """

    id: str
    state: str
    onnx_path: str
    format: str
    description: str
    pinned: bool
    idle_timeout_secs: float
    max_batch_size: int
    max_batch_delay_ms: float
    last_accessed_secs_ago: float | None
    memory_bytes: int
    vram_bytes: int | None
    replicas: int
    queue_depth: int
    inputs: list[TensorView] | None
    outputs: list[TensorView] | None
    device: str
    waits_for: str | None
    last_error: str | None
    loads: int
    cold_start_ms: float | None


class Changed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer to a request that changed a model."""

    model_id: str
    status: str
    pinned: bool
    freed_bytes: int | msgspec.UnsetType = msgspec.UNSET
    memory_before_bytes: int | msgspec.UnsetType = msgspec.UNSET
    memory_after_bytes: int | msgspec.UnsetType = msgspec.UNSET


class Refreshed(msgspec.Struct, kw_only=True):
    """The answer to a request to look at everything again.

    Attributes:
        added, removed, changed: ids of models.
        needs_restart: settings in `[server]` that are others than at the start, and wait for the
            next one.
    """

    models: list[ModelView]
    added: list[str]
    removed: list[str]
    changed: list[str]
    needs_restart: list[str]


class Control:
    """The control plane of every transport.

    Args:
        rescan: reads the configuration again; it runs in a thread.
        check: raises ConfigError for a configuration that cannot be served.
        apply: takes over what a configuration says, apart from the models.
        server: the settings that the daemon was started with.

    Attributes:
        changes: held from `read` to `take`, so that what was read last counts.
        models_dir: where models are looked for.
    """

    def __init__(
        self,
        registry: Registry,
        serving: Serving,
        *,
        rescan: Callable[[], Configuration],
        check: Callable[[Configuration], None],
        apply: Callable[[Configuration], None],
        server: ServerConfig,
    ) -> None:
        self._registry = registry
        self._serving = serving
        self._rescan = rescan
        self._check = check
        self._apply = apply
        self._server = server
        self.models_dir = server.models_dir
        self.changes = asyncio.Lock()

    def models(self) -> list[ModelView]:
        return [_view(actor) for actor in self._registry]

    def model(self, model_id: str, may_see: MaySee | None = None) -> ModelView:
        """Describe a model. Args and Raises: see `Registry.get`."""
        return _view(self._registry.get(model_id, may_see))

    async def load(self, model_id: str, *, wait: bool = True) -> Changed:
        """Load a model.

        Args:
            wait: return when it is ready; otherwise at once, with status `loading` if it is not.
        """
        actor = self._changeable(model_id)
        if wait:
            await actor.load()
        else:
            actor.load_nowait()
        status = "loaded" if actor.public_state in ("ready", "busy") else "loading"
        return Changed(model_id=model_id, status=status, pinned=actor.pinned)

    async def unload(self, model_id: str) -> Changed:
        actor = self._changeable(model_id)
        freed_bytes = await actor.unload()
        after_bytes = actor.crew.memory_bytes()
        return Changed(
            model_id=model_id,
            status="unloaded",
            pinned=actor.pinned,
            freed_bytes=freed_bytes,
            memory_before_bytes=after_bytes + freed_bytes,
            memory_after_bytes=after_bytes,
        )

    async def pin(self, model_id: str) -> Changed:
        actor = self._changeable(model_id)
        await actor.pin()
        return Changed(model_id=model_id, status="pinned", pinned=True)

    async def unpin(self, model_id: str) -> Changed:
        actor = self._changeable(model_id)
        actor.unpin()
        return Changed(model_id=model_id, status="unpinned", pinned=False)

    async def refresh(self) -> Refreshed:
        """Look at the configuration, its keys, the TLS files and the models folder again.

        Raises:
            InvalidInput: the configuration has become wrong; everything stays as it was.
        """
        async with self.changes:
            configuration = await self.read()
            changes = self.take(configuration)
        waiting = waits_for_restart(self._server, configuration.server)
        _log.info("refreshed", extra={"fields": changes._asdict()})
        if waiting:
            _log.warning("changed, but it counts from the next start only: %s", ", ".join(waiting))
        return Refreshed(models=self.models(), **changes._asdict(), needs_restart=waiting)

    async def read(self) -> Configuration:
        """What the configuration and the models folder say now, apart from what is left of uploads
        that have been removed; that is tidied up.

        Raises:
            InvalidInput: the configuration has become wrong.
        """
        try:
            configuration = await asyncio.to_thread(self._rescan)
            self._check(configuration)
        except ConfigError as error:
            raise InvalidInput(
                f"nothing was changed, the configuration is wrong: {error}"
            ) from error
        await asyncio.to_thread(remove_orphans, configuration)
        return configuration

    def take(self, configuration: Configuration) -> Changes:
        """Make a configuration count.

        Raises:
            ShuttingDown: the shutdown may have begun while it was read.
        """
        self.refuse_while_draining()
        self._apply(configuration)
        self.models_dir = configuration.server.models_dir
        return self._registry.apply(configuration.models)

    def _changeable(self, model_id: str) -> ModelActor:
        self.refuse_while_draining()
        return self._registry.get(model_id)

    def refuse_while_draining(self) -> None:
        if self._serving.draining:
            raise ShuttingDown("the server is shutting down and changes nothing any more")


def _view(actor: ModelActor) -> ModelView:
    config, signature = actor.config, actor.crew.plan.signature if actor.crew.plan else None
    accessed, cold_start_s = actor.last_accessed, actor.crew.cold_start_s
    return ModelView(
        id=config.id,
        state=actor.public_state,
        onnx_path=str(config.path),
        format=config.format,
        description=config.description,
        pinned=actor.pinned,
        idle_timeout_secs=config.idle_timeout_secs,
        max_batch_size=config.max_batch_size,
        max_batch_delay_ms=config.max_batch_delay_ms,
        last_accessed_secs_ago=None if accessed is None else time.monotonic() - accessed,
        memory_bytes=actor.crew.memory_bytes(),
        vram_bytes=actor.crew.vram_bytes(),
        replicas=actor.crew.size,
        queue_depth=actor.dispatch.queue_depth,
        inputs=_tensor_views(signature.inputs, signature.open_inputs) if signature else None,
        outputs=_tensor_views(signature.outputs, signature.open_outputs) if signature else None,
        device=actor.crew.device or config.device,
        waits_for=actor.waits_for,
        last_error=actor.last_error.message if actor.last_error else None,
        loads=actor.crew.loads,
        cold_start_ms=None if cold_start_s is None else cold_start_s * 1000,
    )


def _tensor_views(specs: tuple[TensorSpec, ...], is_open: bool) -> list[TensorView] | None:
    if is_open:
        return None
    return [TensorView(spec.name, spec.datatype, spec.public_shape) for spec in specs]
