"""What honest clients notice of a thousand others who send one byte a second."""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, at_most
from benchmarks.rounds import ratio
from benchmarks.stand import IRIS_BODY, iris_model, milliseconds, served
from e2e.client import Address
from e2e.daemon import path
from e2e.tricklers import latencies_s, trickling

_ROUNDS: Final = 5
_SLOW_CLIENTS: Final = 1000
_SETTINGS: Final = (
    "[server]\nheader_timeout_secs = 600\ntransfer_timeout_secs = 600\n"
    "[defaults]\nidle_timeout_secs = 0\n"
)


def measure() -> list[Figure]:
    """200 requests/s from ten clients, alone and in company, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "iris.onnx").write_bytes(iris_model())
        with served(Path(folder), _SETTINGS) as daemon:
            daemon.control("iris", "load")
            alone, crowded = asyncio.run(_in_turns(daemon.address))
    raw = {"alone": milliseconds(alone), "crowded": milliseconds(crowded)}
    return [
        Figure(what="median beside 1,000 slow clients", value=median(raw["crowded"]), unit="ms"),
        Figure(
            what="median beside 1,000 slow clients / alone",
            value=ratio(crowded, alone),
            unit="",
            bound=at_most(2.0),
            raw=raw,
        ),
    ]


async def _in_turns(address: Address) -> tuple[list[float], list[float]]:
    alone: list[float] = []
    crowded: list[float] = []
    for _ in range(_ROUNDS):
        alone.append(await _median_s(address))
        async with trickling(address, path("iris", "infer"), _SLOW_CLIENTS):
            crowded.append(await _median_s(address))
    return alone, crowded


async def _median_s(address: Address) -> float:
    return median(await latencies_s(address, path("iris", "infer"), IRIS_BODY, seconds=3))
