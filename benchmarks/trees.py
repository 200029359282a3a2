"""A model of 500 trees: what a row costs over HTTP, and rows/s beside the library's own."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks import wrk
from benchmarks.figures import Figure, at_most
from benchmarks.rounds import in_turns, ratio
from benchmarks.stand import IRIS_BODY, infer_url, iris_model, served
from e2e.client import infer_body, tensor

_TREES: Final = 500
_DEPTH: Final = 6
_FEATURES: Final = 20
_BATCHES: Final = (1, 16, 256, 1024)
_ROUNDS: Final = 5
_ROUND_S: Final = 0.5
_SETTINGS: Final = "[defaults]\nidle_timeout_secs = 0\nmax_batch_size = 1024\n"

Features = npt.NDArray[np.float32]


class XgboostMissing(Exception):
    """The library is not installed."""


def measure() -> list[Figure]:
    features = np.random.default_rng(0).normal(size=(4096, _FEATURES)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        booster = _trained(features, Path(folder, "trees.ubj"))
        Path(folder, "iris.onnx").write_bytes(iris_model())
        with served(Path(folder), _SETTINGS) as daemon:
            for name in ("trees", "iris"):
                daemon.control(name, "load")  # prepares it
            urls = {name: infer_url(daemon, name) for name in ("trees", "iris")}
            bodies = {"trees": _body(features[:1]), "iris": IRIS_BODY}
            single = in_turns(urls, bodies, 1, seconds=1)
            throughput = [
                figure
                for count in _BATCHES
                for figure in _throughput(urls["trees"], booster, features[:count])
            ]
    trees, iris = single.latency_us("trees"), single.latency_us("iris")
    over_ms = median(one - other for one, other in zip(trees, iris, strict=True)) / 1000
    where, raw = "1 row, 1 connection", {"trees": trees, "iris": iris}
    return [
        Figure(what=f"{where}, {_TREES} trees, median latency", value=median(trees), unit="us"),
        Figure(what=f"{where}, iris, median latency", value=median(iris), unit="us"),
        single.disturbance(where),
        Figure(
            what=f"{where}, {_TREES} trees - iris",
            value=over_ms,
            unit="ms",
            bound=at_most(0.3),
            raw=raw,
        ),
        *throughput,
    ]


def _trained(features: Features, path: Path) -> Any:
    """The library's own model, which predicts on one thread, like a worker."""
    try:
        import xgboost
    except ImportError:
        raise XgboostMissing("this needs xgboost: pip install 'snoozeml[bench]'") from None
    target = features[:, 0] + features[:, 1] ** 2 + np.sin(3 * features[:, 2]) * features[:, 3]
    options = {"max_depth": _DEPTH, "eta": 0.1, "nthread": 1}
    booster = xgboost.train(options, xgboost.DMatrix(features, label=target), _TREES)
    booster.save_model(path)
    return booster


def _body(features: Features) -> bytes:
    return infer_body(tensor("features", features.shape, features.ravel().tolist()))


def _throughput(url: str, booster: Any, features: Features) -> list[Figure]:
    """One client that asks for a whole batch at a time, in turns with the library in a loop."""
    count, body = len(features), _body(features)
    over_http, in_process = [], []
    for _ in range(_ROUNDS):
        over_http.append(wrk.post(url, body, connections=1, seconds=1).requests_per_s * count)
        in_process.append(_calls_per_s(lambda: booster.inplace_predict(features)) * count)
    raw = {"snooze": over_http, "xgboost": in_process}
    where = f"{count:,} row{'s' * (count > 1)} at a time"
    return [
        Figure(what=f"{where}, HTTP", value=median(over_http), unit="rows/s"),
        Figure(what=f"{where}, xgboost in process", value=median(in_process), unit="rows/s"),
        Figure(
            what=f"{where}, HTTP / in process", value=ratio(over_http, in_process), unit="", raw=raw
        ),
    ]


def _calls_per_s(call: Callable[[], object]) -> float:
    calls, started = 0, time.perf_counter()
    while (took_s := time.perf_counter() - started) < _ROUND_S:
        call()
        calls += 1
    return calls / took_s
