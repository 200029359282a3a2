"""What merging gives at many connections, and what it must not cost at one."""

import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.rounds import Rounds, in_turns, ratio
from benchmarks.stand import IRIS_BODY, infer_url, iris_model, served

_CROWD: Final = 64
_FIXED: Final = {f"fixed, {delay_ms} ms": ("fixed", delay_ms) for delay_ms in (0, 1, 2, 5, 10)}
_WAYS: Final = {"adaptive": ("adaptive", 10), "off": ("off", 10), **_FIXED}
"""Batching and `max_batch_delay_ms`, by the id of a model; all are the same model."""


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for name in _WAYS:
            Path(folder, f"{name}.onnx").write_bytes(iris_model())
        with served(Path(folder), _settings()) as daemon:
            urls = {name: infer_url(daemon, name) for name in _WAYS}
            pair = {name: urls[name] for name in ("adaptive", "off")}
            single = in_turns(pair, IRIS_BODY, 1, seconds=1)
            del urls["off"]
            crowd = in_turns(urls, IRIS_BODY, _CROWD, seconds=1)
    return [*_single(single), *_crowd(crowd)]


def _settings() -> str:
    return "[defaults]\nidle_timeout_secs = 0\n" + "".join(
        f'[models."{name}"]\nbatching = "{batching}"\nmax_batch_delay_ms = {delay_ms}\n'
        for name, (batching, delay_ms) in _WAYS.items()
    )


def _single(single: Rounds) -> list[Figure]:
    adaptive, off = single.latency_us("adaptive"), single.latency_us("off")
    raw, delay = {"adaptive": adaptive, "off": off}, ratio(adaptive, off)
    where = "1 connection"
    return [
        Figure(what=f"{where}, adaptive, median latency", value=median(adaptive), unit="us"),
        Figure(what=f"{where}, batching off, median latency", value=median(off), unit="us"),
        single.disturbance(where),
        Figure(what=f"{where}, adaptive / off", value=delay, unit="", bound=at_most(1.1), raw=raw),
    ]


def _crowd(crowd: Rounds) -> list[Figure]:
    raw = {name: crowd.requests_per_s(name) for name in ("adaptive", *_FIXED)}
    best = max(_FIXED, key=lambda name: median(raw[name]))
    share, where = ratio(raw["adaptive"], raw[best]), f"{_CROWD} connections"
    return [
        *(
            Figure(what=f"{where}, {name}", value=median(rounds), unit="requests/s")
            for name, rounds in raw.items()
        ),
        crowd.disturbance(where),
        Figure(
            what=f"{where}, adaptive / best fixed ({best})",
            value=share,
            unit="",
            bound=at_least(0.95),
            raw=raw,
        ),
    ]
