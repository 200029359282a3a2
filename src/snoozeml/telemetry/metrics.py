"""What is counted, and how it is shown to Prometheus."""

from collections.abc import Iterator
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Totals(msgspec.Struct):
    """Counts since the daemon started.

    Plain numbers, because they are written on the way of every request; they become Prometheus
    samples only when somebody scrapes.
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


class _TotalsCollector:
    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        totals = self._totals
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


class Certificate(Protocol):
    """What is shown of the daemon's certificate."""

    def expires_at(self) -> float:
        """Seconds since 1970."""


class _CertificateCollector:
    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "snoozeml_tls_certificate_expiry_timestamp_seconds",
            "When the certificate that clients are shown expires, in seconds since 1970.",
            value=self._certificate.expires_at(),
        )


class Exposition:
    """Renders the counts for a scrape; without a certificate nothing is said about one."""

    def __init__(self, totals: Totals, certificate: Certificate | None = None) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_TotalsCollector(totals))
        if certificate is not None:
            self._registry.register(_CertificateCollector(certificate))

    def render(self) -> bytes:
        return generate_latest(self._registry)
