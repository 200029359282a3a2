"""What a scrape shows, read back with Prometheus' own parser."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from snoozeml.telemetry.metrics import Exposition, Totals
from snoozeml.telemetry.reading import STATES, ModelReading, Reading
from snoozeml.telemetry.statistics import (
    BATCH_BOUNDS_ROWS,
    DURATION_BOUNDS_S,
    RESTART_REASONS,
    Durations,
    Histogram,
    ModelStatistics,
)

TYPES = {
    "snoozeml_model_requests": "counter",
    "snoozeml_model_latency_seconds": "histogram",
    "snoozeml_model_queue_seconds": "histogram",
    "snoozeml_model_cold_start_seconds": "histogram",
    "snoozeml_model_batch_size": "histogram",
    "snoozeml_model_restarts": "counter",
    "snoozeml_model_state": "gauge",
    "snoozeml_model_replicas": "gauge",
    "snoozeml_model_memory_bytes": "gauge",
    "snoozeml_model_vram_bytes": "gauge",
}


def test_whatever_strangers_ask_it_is_measured_once_a_second() -> None:
    measured = 0

    async def read() -> Reading:
        nonlocal measured
        measured += 1
        await asyncio.sleep(0)
        return Reading(models=[model("a")], leaving=[], models_limit=1, memory_limit_bytes=1)

    now = 100.0
    exposition = Exposition(Totals(), read, clock=lambda: now)

    async def scene() -> None:
        nonlocal now
        many = await asyncio.gather(*(exposition.render_for_strangers() for _ in range(9)))
        assert set(many) == {await exposition.render(lambda _: False)}
        assert measured == 2
        now += 0.9
        await exposition.render_for_strangers()
        assert measured == 2
        now += 0.2
        await exposition.render_for_strangers()
        assert measured == 3

    asyncio.run(scene())


def used() -> ModelStatistics:
    statistics = ModelStatistics()
    for seconds in (0.001, 0.0011, 31.0):
        statistics.answered(seconds, seconds / 2, seconds / 4)
    statistics.failed.add(2.0)
    statistics.cold_starts.add(0.02)
    for rows in (1, 3, 4, 1000):
        statistics.ran(1, rows, 0.5)
    statistics.restarts["hang"] += 2
    return statistics


def model(model_id: str, **changes: Any) -> ModelReading:
    sleeping = ModelReading(
        model_id=model_id,
        statistics=ModelStatistics(),
        state="idle",
        replicas=0,
        queue_depth=0,
        memory_bytes=0,
        vram_bytes=None,
    )
    return replace(sleeping, **changes)


def busy(model_id: str) -> ModelReading:
    return model(
        model_id,
        statistics=used(),
        state="busy",
        replicas=2,
        queue_depth=5,
        memory_bytes=3 << 40,
        vram_bytes=7,
    )


class Scrape:
    def __init__(
        self,
        *models: ModelReading,
        totals: Totals | None = None,
        leaving: Iterable[ModelReading] = (),
        may_see: Callable[[str], bool] = lambda _: True,
    ) -> None:
        reading = Reading(
            models=models, leaving=list(leaving), models_limit=8, memory_limit_bytes=1 << 40
        )

        async def read() -> Reading:
            return reading

        text = asyncio.run(Exposition(totals or Totals(), read).render(may_see)).decode()
        assert text.endswith("\n")
        families = list(text_string_to_metric_families(text))
        self.families: dict[str, Metric] = {family.name: family for family in families}
        assert len(self.families) == len(families), "the samples of a metric stand together"

    def values(self, sample: str, **labels: str) -> list[float]:
        """In the order they are written."""
        return [
            found.value
            for family in self.families.values()
            for found in family.samples
            if found.name == sample and labels.items() <= found.labels.items()
        ]

    def value(self, sample: str, **labels: str) -> float:
        (found,) = self.values(sample, **labels)
        return found


def test_every_metric_has_its_type_and_a_text() -> None:
    scrape = Scrape(busy("a"), model("b"))
    assert {name: scrape.families[name].type for name in TYPES} == TYPES
    assert all(family.documentation for family in scrape.families.values())


def test_a_histogram_counts_up_to_and_including_each_bound() -> None:
    scrape, name = Scrape(busy("a")), "snoozeml_model_latency_seconds"
    assert scrape.value(f"{name}_bucket", le="0.001") == 1
    assert scrape.value(f"{name}_bucket", le="0.0025") == 2
    assert scrape.value(f"{name}_bucket", le="30.0") == 2
    assert scrape.value(f"{name}_bucket", le="+Inf") == 3
    assert scrape.value(f"{name}_count") == 3
    assert scrape.value(f"{name}_sum") == pytest.approx(31.0021)
    assert len(scrape.values(f"{name}_bucket")) == len(DURATION_BOUNDS_S) + 1
    assert scrape.value("snoozeml_model_queue_seconds_sum") == pytest.approx(15.50105)


def test_batches_are_counted_by_their_rows() -> None:
    scrape, name = Scrape(busy("a")), "snoozeml_model_batch_size"
    assert scrape.values(f"{name}_bucket") == [1, 1, 3, 3, 3, 3, 3, 3, 3, 4]
    assert len(BATCH_BOUNDS_ROWS) == 9
    assert (scrape.value(f"{name}_count"), scrape.value(f"{name}_sum")) == (4, 1008)


def test_counts_and_gauges_of_a_model() -> None:
    scrape = Scrape(busy("a"), model("b"))
    requests, restarts = "snoozeml_model_requests_total", "snoozeml_model_restarts_total"
    assert scrape.value(requests, model="a", status="success") == 3
    assert scrape.value(requests, model="a", status="error") == 1
    assert scrape.values(requests, model="b") == [0, 0]
    assert scrape.value(restarts, model="a", reason="hang") == 2
    assert scrape.values(restarts, model="b") == [0] * len(RESTART_REASONS)
    for state in STATES:
        assert scrape.value("snoozeml_model_state", model="a", state=state) == (state == "busy")
        assert scrape.value("snoozeml_model_state", model="b", state=state) == (state == "idle")
    assert scrape.value("snoozeml_model_replicas", model="a") == 2
    assert scrape.value("snoozeml_model_memory_bytes", model="a") == 3 << 40
    assert scrape.values("snoozeml_model_vram_bytes") == [7], "of b nothing is known"


def test_a_model_that_was_never_used_has_no_histograms() -> None:
    scrape = Scrape(model("b"))
    for name, kind in TYPES.items():
        assert bool(scrape.families[name].samples) == (
            kind != "histogram" and name != "snoozeml_model_vram_bytes"
        )


@pytest.mark.parametrize("model_id", ['say "hi"', "100%d", "größer", "{x}", "%s%r", "a b,c=d"])
def test_any_id_comes_through(model_id: str) -> None:
    scrape = Scrape(busy(model_id))
    for family in TYPES:
        labels = {sample.labels["model"] for sample in scrape.families[family].samples}
        assert labels == {model_id}


def test_totals_are_those_of_all_models_and_of_what_none_took() -> None:
    totals = Totals(failed=10)
    scrape = Scrape(busy("a"), busy("b"), leaving=[busy("c")], totals=totals)
    assert scrape.value("snoozeml_requests_total", status="all") == 22
    assert scrape.value("snoozeml_requests_total", status="success") == 9
    assert scrape.value("snoozeml_requests_total", status="error") == 13
    assert scrape.value("snoozeml_batches_dispatched_total") == 12
    latency_s = scrape.value("snoozeml_inference_latency_seconds_total")
    assert latency_s == pytest.approx(3 * 31.0021)
    assert totals == Totals(failed=10), "reading changes nothing"


def test_totals_stay_when_a_model_goes() -> None:
    totals = Totals()
    before = Scrape(busy("a"), leaving=[model("c", statistics=used())], totals=totals)
    totals.take_over(used())
    after = Scrape(busy("a"), totals=totals)
    for name in ("snoozeml_requests_total", "snoozeml_batches_dispatched_total"):
        assert before.values(name) == after.values(name)


def test_gauges_of_the_daemon() -> None:
    leaving = model("gone", replicas=1, memory_bytes=10)
    scrape = Scrape(busy("a"), busy("b"), model("c"), model("d", state="failed"), leaving=[leaving])
    states = {state: scrape.value("snoozeml_models", state=state) for state in STATES}
    assert states == {"idle": 1, "loading": 0, "ready": 0, "busy": 2, "failed": 1}
    assert scrape.value("snoozeml_models_loaded") == 3
    assert scrape.value("snoozeml_models_loaded_limit") == 8
    assert scrape.value("snoozeml_workers") == 5
    assert scrape.value("snoozeml_queue_depth") == 10
    assert scrape.value("snoozeml_memory_bytes") == (6 << 40) + 10
    assert scrape.value("snoozeml_memory_limit_bytes") == 1 << 40


def test_who_may_not_see_a_model_sees_it_in_the_totals_only() -> None:
    scrape = Scrape(busy("mine"), busy("secret"), may_see=lambda model_id: model_id == "mine")
    for name in TYPES:
        assert {sample.labels["model"] for sample in scrape.families[name].samples} == {"mine"}
    assert scrape.value("snoozeml_requests_total", status="success") == 6


def test_a_histogram_knows_count_and_sum() -> None:
    histogram, durations = Histogram(), Durations()
    for seconds in (0.0, 1e-9, 0.5, 1e9):
        histogram.add(seconds)
        durations.add(seconds)
    assert (histogram.count, histogram.seconds) == (durations.count, durations.seconds)
