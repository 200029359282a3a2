"""Requests per second and latency, beside a bare server that returns a constant."""

import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.rounds import Rounds, in_turns, ratio
from benchmarks.stand import IRIS_BODY, baseline, infer_url, iris_model, served

_CROWD: Final = 64


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "iris.onnx").write_bytes(iris_model())
        with served(Path(folder), "[defaults]\nidle_timeout_secs = 0\n") as daemon:
            answer = daemon.request("POST", "/v1/models/iris/infer", IRIS_BODY)
            answer.headers.pop("x-snooze-cold-start-ms")  # only the first answer has it
            with baseline(answer) as bare_url:
                urls = {"snooze": infer_url(daemon, "iris"), "bare": bare_url}
                crowd = in_turns(urls, IRIS_BODY, _CROWD, seconds=2)
                single = in_turns(urls, IRIS_BODY, 1, seconds=1)
    return [*_throughput(crowd), *_latency(single)]


def _throughput(crowd: Rounds) -> list[Figure]:
    snooze, bare = crowd.requests_per_s("snooze"), crowd.requests_per_s("bare")
    raw, share = {"snooze": snooze, "bare": bare}, ratio(snooze, bare)
    where = f"{_CROWD} connections"
    return [
        Figure(what=f"{where}, iris", value=median(snooze), unit="requests/s"),
        Figure(what=f"{where}, bare uvicorn", value=median(bare), unit="requests/s"),
        crowd.disturbance(where),
        Figure(what=f"{where}, iris / bare", value=share, unit="", bound=at_least(0.6), raw=raw),
    ]


def _latency(single: Rounds) -> list[Figure]:
    snooze, bare = single.latency_us("snooze"), single.latency_us("bare")
    raw, multiple = {"snooze": snooze, "bare": bare}, ratio(snooze, bare)
    where = "1 connection"
    return [
        Figure(what=f"{where}, iris, median latency", value=median(snooze), unit="us"),
        Figure(what=f"{where}, bare uvicorn, median latency", value=median(bare), unit="us"),
        single.disturbance(where),
        Figure(what=f"{where}, iris / bare", value=multiple, unit="", bound=at_most(3.5), raw=raw),
    ]
