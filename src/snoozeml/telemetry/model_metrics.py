"""The series that models have of their own, in Prometheus' text format.

A thousand models have some 70 000 series. `prometheus_client` needs a second to write them, during
which the daemon would serve nobody; filling in templates takes a thirtieth of that.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from snoozeml.telemetry.reading import STATES, ModelReading
from snoozeml.telemetry.statistics import (
    BATCH_BOUNDS_ROWS,
    DURATION_BOUNDS_S,
    RESTART_REASONS,
    Histogram,
    ModelStatistics,
)

_MODEL: Final = "\0"
"""Where a template has the model's id, which is put in last: an id may look like a template."""

Values = Sequence[float] | None
"""What fills a template; None: the model has nothing to say."""


class _Family:
    """One metric: its head, and the lines of one model."""

    def __init__(self, name: str, kind: str, text: str, lines: str) -> None:
        self.head: Final = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        self._lines: Final = lines

    def lines(self, label: str, values: Sequence[float]) -> str:
        return (self._lines % tuple(values)).replace(_MODEL, label)


def _line(name: str, labels: str = "") -> str:
    return f'{name}{{model="{_MODEL}"{labels}}} %r\n'


def _single(name: str, kind: str, text: str) -> _Family:
    return _Family(name, kind, text, _line(name))


def _labelled(name: str, kind: str, text: str, label: str, values: Iterable[str]) -> _Family:
    lines = (_line(name, f',{label}="{value}"') for value in values)
    return _Family(name, kind, text, "".join(lines))


def _histogram(name: str, text: str, bounds: Iterable[float]) -> _Family:
    buckets = [_line(f"{name}_bucket", f',le="{float(bound)}"') for bound in bounds]
    buckets.append(_line(f"{name}_bucket", ',le="+Inf"'))
    lines = "".join(buckets) + _line(f"{name}_count") + _line(f"{name}_sum")
    return _Family(name, "histogram", text, lines)


def _durations(name: str, text: str) -> _Family:
    return _histogram(name, text, DURATION_BOUNDS_S)


def _filled(counts: Sequence[int], total: float) -> Values:
    """A histogram's values; nothing before the first observation, as most models sleep."""
    up_to = list(accumulate(counts))
    return (*up_to, up_to[-1], total) if up_to[-1] else None


def _of(histogram: Histogram) -> Values:
    return _filled(histogram.counts, histogram.seconds)


def _requests(statistics: ModelStatistics) -> Values:
    return (statistics.succeeded.count, statistics.failed.count)


def _vram(model: ModelReading) -> Values:
    return None if model.vram_bytes is None else (model.vram_bytes,)


_FAMILIES: Final[Sequence[tuple[_Family, Callable[[ModelReading], Values]]]] = (
    (
        _labelled(
            "snoozeml_model_requests_total",
            "counter",
            "Inference requests answered.",
            "status",
            ("success", "error"),
        ),
        lambda model: _requests(model.statistics),
    ),
    (
        _durations(
            "snoozeml_model_latency_seconds",
            "From a request's arrival to its answer, for successful requests.",
        ),
        lambda model: _of(model.statistics.succeeded),
    ),
    (
        _durations(
            "snoozeml_model_queue_seconds",
            "From a request's arrival to the start of its run, for successful requests.",
        ),
        lambda model: _of(model.statistics.queued),
    ),
    (
        _durations(
            "snoozeml_model_cold_start_seconds",
            "What it took to load the model when no worker was there, without waiting for room.",
        ),
        lambda model: _of(model.statistics.cold_starts),
    ),
    (
        _histogram("snoozeml_model_batch_size", "Rows in a run of the model.", BATCH_BOUNDS_ROWS),
        lambda model: _filled(model.statistics.batch_counts(), model.statistics.rows),
    ),
    (
        _labelled(
            "snoozeml_model_restarts_total",
            "counter",
            "Workers that ended without being asked to.",
            "reason",
            RESTART_REASONS,
        ),
        lambda model: [model.statistics.restarts[reason] for reason in RESTART_REASONS],
    ),
    (
        _labelled("snoozeml_model_state", "gauge", "1 for the state it is in.", "state", STATES),
        lambda model: [int(model.state == state) for state in STATES],
    ),
    (
        _single("snoozeml_model_replicas", "gauge", "Workers that are ready."),
        lambda model: (model.replicas,),
    ),
    (
        _single(
            "snoozeml_model_memory_bytes",
            "gauge",
            "What its workers take, shared pages in equal parts.",
        ),
        lambda model: (model.memory_bytes,),
    ),
    (
        _single(
            "snoozeml_model_vram_bytes",
            "gauge",
            "What its workers take of a GPU's own memory, where that is known.",
        ),
        _vram,
    ),
)


def render(models: Sequence[ModelReading]) -> str:
    """The series of these models."""
    return "".join(_pieces([(_escaped(model.model_id), model) for model in models]))


def _pieces(models: Sequence[tuple[str, ModelReading]]) -> Iterator[str]:
    for family, values_of in _FAMILIES:
        yield family.head
        for label, model in models:
            values = values_of(model)
            if values is not None:
                yield family.lines(label, values)


def _escaped(model_id: str) -> str:
    return model_id.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
