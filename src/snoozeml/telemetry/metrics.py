"""The counts and gauges of the whole daemon, and how everything is shown to Prometheus."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from snoozeml.telemetry import model_metrics
from snoozeml.telemetry.reading import STATES, ModelReading, Reading
from snoozeml.telemetry.statistics import ModelStatistics

CONTENT_TYPE = CONTENT_TYPE_LATEST
_GOOD_S: Final = 1.0


AUTH_FAILURES: Final = ("missing", "malformed", "invalid", "expired", "role", "model", "rate")
"""Why somebody is not let in; docs/metrics.md says what each means."""


class Totals(msgspec.Struct):
    """Counts since the daemon started, as far as no model that is there counts them itself.

    Attributes:
        succeeded, failed, latency_s, batches: of models that are gone; of `failed`, also requests
            that no model took.
    """

    succeeded: int = 0
    failed: int = 0
    latency_s: float = 0.0
    batches: int = 0
    load_retries: int = 0
    thrashing: int = 0
    stream_consumed: int = 0
    stream_published: int = 0
    stream_errors: int = 0
    deallocations: dict[str, int] = msgspec.field(
        default_factory=lambda: {"oom": 0, "idle": 0, "capacity": 0}
    )
    auth_failures: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(AUTH_FAILURES, 0)
    )

    def take_over(self, statistics: ModelStatistics) -> None:
        """Keep the counts of a model that goes away: totals never fall."""
        self.succeeded += statistics.succeeded.count
        self.failed += statistics.failed.count
        self.latency_s += statistics.succeeded.seconds
        self.batches += statistics.runs


def _with_models(totals: Totals, models: list[ModelReading]) -> Totals:
    everything = msgspec.structs.replace(totals)
    for model in models:
        everything.take_over(model.statistics)
    return everything


def _counts(totals: Totals) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "snoozeml_requests", "Inference requests answered.", labels=["status"]
    )
    requests.add_metric(["all"], totals.succeeded + totals.failed)
    requests.add_metric(["success"], totals.succeeded)
    requests.add_metric(["error"], totals.failed)
    yield requests
    deallocations = CounterMetricFamily(
        "snoozeml_model_deallocations",
        "Models unloaded without being asked.",
        labels=["reason"],
    )
    for reason, count in totals.deallocations.items():
        deallocations.add_metric([reason], count)
    yield deallocations
    failures = CounterMetricFamily(
        "snoozeml_auth_failures", "Requests refused for their credentials.", labels=["reason"]
    )
    for reason, count in totals.auth_failures.items():
        failures.add_metric([reason], count)
    yield failures
    for name, text, value in (
        (
            "snoozeml_inference_latency_seconds",
            "Seconds from arrival to answer, summed over successful requests.",
            totals.latency_s,
        ),
        ("snoozeml_batches_dispatched", "Runs of a model on a batch.", totals.batches),
        ("snoozeml_model_load_retries", "Loads tried again.", totals.load_retries),
        (
            "snoozeml_deallocation_thrashing",
            "Times that a model was unloaded and needed again too soon.",
            totals.thrashing,
        ),
        (
            "snoozeml_stream_messages_consumed",
            "Messages taken from brokers.",
            totals.stream_consumed,
        ),
        (
            "snoozeml_stream_messages_published",
            "Messages given to brokers.",
            totals.stream_published,
        ),
        ("snoozeml_stream_errors", "Messages that failed.", totals.stream_errors),
    ):
        yield CounterMetricFamily(name, text, value=value)


def _gauges(reading: Reading, models: list[ModelReading]) -> Iterator[Metric]:
    by_state = GaugeMetricFamily("snoozeml_models", "Registered models.", labels=["state"])
    states = Counter(model.state for model in reading.models)
    for state in STATES:
        by_state.add_metric([state], states[state])
    yield by_state
    for name, text, value in (
        ("models_loaded", "Models with a worker.", sum(model.replicas > 0 for model in models)),
        ("models_loaded_limit", "How many may be loaded.", reading.models_limit),
        ("workers", "Workers that are ready.", sum(model.replicas for model in models)),
        (
            "queue_depth",
            "Requests that wait in the daemon for a worker.",
            sum(model.queue_depth for model in models),
        ),
        (
            "memory_bytes",
            "What all workers take, shared pages in equal parts.",
            sum(model.memory_bytes for model in models),
        ),
        ("memory_limit_bytes", "What all workers may take.", reading.memory_limit_bytes),
    ):
        yield GaugeMetricFamily(f"snoozeml_{name}", text, value=value)


class Certificate(Protocol):
    """What is shown of the daemon's certificate."""

    def expires_at(self) -> float:
        """Seconds since 1970."""


class _Scrape(Collector):
    def __init__(self, totals: Totals, reading: Reading, certificate: Certificate | None) -> None:
        self._totals = totals
        self._reading = reading
        self._certificate = certificate

    def collect(self) -> Iterator[Metric]:
        models = [*self._reading.models, *self._reading.leaving]
        yield from _counts(_with_models(self._totals, models))
        yield from _gauges(self._reading, models)
        if self._certificate is not None:
            yield GaugeMetricFamily(
                "snoozeml_tls_certificate_expiry_timestamp_seconds",
                "When the certificate that clients are shown expires, in seconds since 1970.",
                value=self._certificate.expires_at(),
            )


class Exposition:
    """Renders a scrape; without a certificate nothing is said about one.

    Args:
        read: looks at the models.
    """

    def __init__(
        self,
        totals: Totals,
        read: Callable[[], Awaitable[Reading]],
        certificate: Certificate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._totals = totals
        self._read = read
        self._certificate = certificate
        self._clock = clock
        self._for_strangers = b""
        self._good_until = -math.inf
        self._rendering = asyncio.Lock()

    async def render(self, may_see: Callable[[str], bool]) -> bytes:
        """What there is to see.

        Args:
            may_see: whether a model's own series are shown.
        """
        reading = await self._read()
        shown = [model for model in reading.models if may_see(model.model_id)]
        common = generate_latest(_Scrape(self._totals, reading, self._certificate))
        return common + model_metrics.render(shown).encode()

    async def render_for_strangers(self) -> bytes:
        """What anybody may see, a second old at most.

        Measuring workers takes milliseconds of processor time, and whoever needs no credentials
        may ask as often as they like.
        """
        async with self._rendering:
            if self._clock() >= self._good_until:
                self._for_strangers = await self.render(lambda _: False)
                self._good_until = self._clock() + _GOOD_S
            return self._for_strangers
