"""The page about metrics knows every series, its labels and its type."""

import asyncio
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from snoozeml.telemetry.metrics import Exposition, Totals
from snoozeml.telemetry.reading import ModelReading, Reading
from snoozeml.telemetry.statistics import ModelStatistics

TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
COUNTED_IN = re.compile(r"_(bucket|count|sum)$")


class Certificate:
    def expires_at(self) -> float:
        return 1.0


def shown() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of every series, of a daemon whose only model has done everything."""
    statistics = ModelStatistics()
    statistics.answered(1, 1, 1)
    statistics.ran(1, 1, 1)
    statistics.cold_starts.add(1)
    model = ModelReading(
        model_id="m",
        statistics=statistics,
        state="busy",
        replicas=1,
        queue_depth=1,
        memory_bytes=1,
        vram_bytes=1,
    )
    reading = Reading(models=[model], leaving=[], models_limit=1, memory_limit_bytes=1)

    async def read() -> Reading:
        return reading

    text = asyncio.run(Exposition(Totals(), read, Certificate()).render(lambda _: True))
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"model", "le"},
        )
        for family in text_string_to_metric_families(text.decode())
    }


def test_every_series_is_told_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(\w+)(?:\{(\w+)\})?` \| (\w+) \|", TEXT, re.MULTILINE)
    assert {name: (kind, {label} - {""}) for name, label, kind in rows} == shown()


def test_the_queries_ask_for_what_there_is() -> None:
    queries = re.findall(r"```promql\n(.*?)```", TEXT, re.DOTALL)
    names = {name for query in queries for name in re.findall(r"snoozeml_\w+", query)}
    assert len(queries) == 3
    assert {COUNTED_IN.sub("", name) for name in names} <= shown().keys()
