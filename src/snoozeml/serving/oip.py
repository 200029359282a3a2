"""The Open Inference Protocol's view of server and models, for both of its transports.

The structs are named and nested as the protocol's messages are; `None` is a field left out.
"""

import asyncio
from typing import Final

import msgspec

from snoozeml import __version__
from snoozeml.config.schema import ModelConfig as Settings
from snoozeml.core.names import MODEL_VERSION, as_model_id
from snoozeml.core.plan import Plan
from snoozeml.core.tensors import DYNAMIC, TensorSpec
from snoozeml.errors import InvalidInput, ModelNotFound
from snoozeml.lifecycle.actor import ModelActor
from snoozeml.lifecycle.registry import Registry
from snoozeml.serving.control import Control, TensorView
from snoozeml.serving.inference import Serving
from snoozeml.serving.versions import check_version
from snoozeml.telemetry.statistics import Durations, Histogram, ModelStatistics

_EXTENSIONS: Final = [
    "binary_tensor_data", "classification", "model_configuration", "model_repository",
    "model_repository(unload_dependents)", "parameters", "schedule_policy", "statistics",
]  # fmt: skip
"""Those of which every part that we advertise works; clients read this list."""

_NOT_ASKED: Final = frozenset({"unload_dependents"})  # a model has no dependents


class ServerMetadata(msgspec.Struct):
    name: str
    version: str
    extensions: list[str]


class ModelMetadata(msgspec.Struct):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorView]
    outputs: list[TensorView]


class InputConfig(msgspec.Struct):
    name: str
    data_type: str
    dims: list[int]
    optional: bool


class OutputConfig(msgspec.Struct):
    name: str
    data_type: str
    dims: list[int]


class DynamicBatching(msgspec.Struct):
    max_queue_delay_microseconds: int


class TransactionPolicy(msgspec.Struct):
    decoupled: bool = False


class ModelConfig(msgspec.Struct, omit_defaults=True):
    """Attributes:
    max_batch_size: 0 where requests are not merged; `dims` then have the batch axis.
    """

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[InputConfig]
    output: list[OutputConfig]
    dynamic_batching: DynamicBatching | None = None
    model_transaction_policy: TransactionPolicy = msgspec.field(default_factory=TransactionPolicy)


class Duration(msgspec.Struct):
    count: int
    ns: int


class InferStatistics(msgspec.Struct):
    """Decoding counts as `queue`, during which it happens; encoding is part of `success` only."""

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration


class BatchStatistics(msgspec.Struct):
    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class MemoryUsage(msgspec.Struct):
    type: str
    id: int
    byte_size: int


class Statistics(msgspec.Struct):
    """Attributes:
    last_inference: milliseconds since 1970; 0: never.
    inference_count: rows.
    execution_count: batches.
    """

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferStatistics
    batch_stats: list[BatchStatistics]
    memory_usage: list[MemoryUsage]


class IndexEntry(msgspec.Struct):
    name: str
    version: str
    state: str
    reason: str


class OpenInference:
    """Answers what clients of the protocol ask about the server and its models."""

    def __init__(self, serving: Serving, registry: Registry, control: Control) -> None:
        self._serving = serving
        self._registry = registry
        self._control = control
        self._one_by_one = asyncio.Lock()

    def server(self) -> ServerMetadata:
        return ServerMetadata("snoozeml", __version__, _EXTENSIONS)

    def is_ready(self, *, strict: bool = False) -> bool:
        """Whether requests are taken.

        Args:
            strict: and every pinned model is loaded, so that none of them has to wait.
        """
        if self._serving.draining:
            return False
        return not strict or all(_is_warm(actor) for actor in self._registry if actor.pinned)

    def model_is_ready(self, name: str, version: str, *, strict: bool = False) -> bool:
        """Whether a model takes requests, be it asleep; one that could not be loaded does not.

        Args:
            strict: and it is loaded.
        """
        try:
            actor = self.actor(name, version)
        except ModelNotFound:
            return False
        return actor.last_error is None and (not strict or _is_warm(actor))

    async def model(self, name: str, version: str) -> ModelMetadata:
        """What a model takes and gives; one that has never been prepared is, none is loaded.

        Raises:
            SnoozeError: there is no such model, or it cannot be prepared.
        """
        actor = self.actor(name, version)
        signature = (await self._plan(actor)).signature
        return ModelMetadata(
            actor.config.id,
            [MODEL_VERSION],
            _platform(actor.config),
            [_view(spec) for spec in signature.inputs],
            [_view(spec) for spec in signature.outputs],
        )

    async def model_config(self, name: str, version: str) -> ModelConfig:
        """How a model is configured; raises like `model`."""
        actor = self.actor(name, version)
        plan, config = await self._plan(actor), actor.config
        merges = plan.batching == "merge" and config.batching != "off"
        rows = config.max_batch_size if merges and _has_rows_first(plan) else 0
        skip = 1 if rows else 0
        delay_us = round(config.max_batch_delay_ms * 1000)
        return ModelConfig(
            name=config.id,
            platform=_platform(config),
            backend=config.format,
            max_batch_size=rows,
            input=[
                InputConfig(s.name, _type(s), _view(s).shape[skip:], _may_be_left_out(s))
                for s in plan.signature.inputs
            ],
            output=[
                OutputConfig(s.name, _type(s), _view(s).shape[skip:])
                for s in plan.signature.outputs
            ],
            dynamic_batching=DynamicBatching(delay_us) if rows else None,
        )

    def statistics(self, name: str, version: str) -> list[Statistics]:
        """The counts of one model, or of all if no name is given."""
        actors = [self.actor(name, version)] if name else list(self._registry)
        return [_statistics(actor) for actor in actors]

    def index(self, *, ready_only: bool) -> list[IndexEntry]:
        """Every model; one that sleeps is ready, since it takes requests."""
        entries = [_entry(actor) for actor in self._registry]
        return [entry for entry in entries if entry.state == "READY" or not ready_only]

    async def load(self, name: str, parameters: dict[str, object]) -> None:
        """Load a model and wait for it.

        Raises:
            SnoozeError: it cannot be loaded, or a parameter asks for what is not served.
        """
        _check_no_parameters(parameters)
        await self._control.load(as_model_id(name))

    async def unload(self, name: str, parameters: dict[str, object]) -> None:
        _check_no_parameters(parameters)
        await self._control.unload(as_model_id(name))

    def actor(self, name: str, version: str) -> ModelActor:
        """The model of this name.

        Raises:
            ModelNotFound: there is none, or not in this version.
        """
        actor = self._registry.get(as_model_id(name))
        check_version(actor.config.id, version)
        return actor

    async def _plan(self, actor: ModelActor) -> Plan:
        if actor.crew.plan is not None:
            return actor.crew.plan
        # One at a time: a client that asks about every model must not start as many processes.
        async with self._one_by_one:
            return await actor.crew.prepare()


def _is_warm(actor: ModelActor) -> bool:
    return actor.public_state in ("ready", "busy")


def _platform(config: Settings) -> str:
    return f"snoozeml_{config.format}"


def _view(spec: TensorSpec) -> TensorView:
    """A tensor with as many rows as one likes, even where the graph takes them one by one."""
    shape = spec.public_shape
    if spec.batch_axis is not None:
        shape[spec.batch_axis] = DYNAMIC
    return TensorView(spec.name, spec.datatype, shape)


def _has_rows_first(plan: Plan) -> bool:
    """Whether the protocol can say where the rows are: the first axis of every tensor."""
    signature = plan.signature
    return all(spec.batch_axis == 0 for spec in (*signature.inputs, *signature.outputs))


def _type(spec: TensorSpec) -> str:
    return "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}"


def _may_be_left_out(spec: TensorSpec) -> bool:
    return spec.default is not None or spec.group is not None


def _check_no_parameters(parameters: dict[str, object]) -> None:
    for name in parameters.keys() - _NOT_ASKED:
        raise InvalidInput(
            f"parameter {name!r:.60} is not supported: a model is loaded as its configuration file"
            " says"
        )


def _entry(actor: ModelActor) -> IndexEntry:
    error = actor.last_error
    state = "LOADING" if actor.public_state == "loading" else "READY"
    if error is not None:
        state = "UNAVAILABLE"
    return IndexEntry(actor.config.id, MODEL_VERSION, state, error.message if error else "")


def _statistics(actor: ModelActor) -> Statistics:
    counts: ModelStatistics = actor.statistics
    nothing = Duration(0, 0)
    return Statistics(
        name=actor.config.id,
        version=MODEL_VERSION,
        last_inference=int(counts.last_at * 1000),
        inference_count=counts.rows,
        execution_count=counts.runs,
        inference_stats=InferStatistics(
            success=_duration(counts.succeeded),
            fail=_duration(counts.failed),
            queue=_duration(counts.queued),
            compute_input=nothing,
            compute_infer=_duration(counts.running),
            compute_output=nothing,
            cache_hit=nothing,
            cache_miss=nothing,
        ),
        batch_stats=[
            BatchStatistics(rows, nothing, _duration(runs), nothing)
            for rows, runs in sorted(counts.by_batch_size.items())
        ],
        memory_usage=[MemoryUsage("CPU", 0, actor.crew.memory_bytes())],
    )


def _duration(durations: Durations | Histogram) -> Duration:
    return Duration(durations.count, round(durations.seconds * 1e9))
