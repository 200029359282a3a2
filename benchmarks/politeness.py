"""What a model's clients notice of it when another model is loaded again and again."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import wrk
from benchmarks.figures import Figure, at_most
from benchmarks.rounds import ratio
from benchmarks.stand import IRIS_BODY, infer_url, iris_model, served
from e2e.client import infer_body, tensor
from e2e.daemon import Daemon
from models import encoder_model

_ROUNDS: Final = 7
_TOKENS: Final = 16
_ENCODER_BODY: Final = infer_body(
    tensor("input_ids", [1, _TOKENS], list(range(101, 101 + _TOKENS))),
    tensor("attention_mask", [1, _TOKENS], [1] * _TOKENS),
    tensor("token_type_ids", [1, _TOKENS], [0] * _TOKENS),
)
_DOC_STRING: Final = b"\x32\x08%08d"
"""Field 6 of an ONNX model; the last one in a file counts."""

_SETTINGS: Final = (
    "[server]\ncache_limit_bytes = 1_000_000_000\n[defaults]\nidle_timeout_secs = 0\n"
)


def measure() -> list[Figure]:
    """A model of tens of microseconds and one of milliseconds; a third is loaded beside them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "iris.onnx").write_bytes(iris_model())
        other = Path(folder, "other.onnx")
        for seed, name in enumerate(("encoder", "other")):
            file = Path(folder, f"{name}.onnx")
            encoder_model(file, layers=6, hidden=384, vocab=30522, heads=12, seed=seed)
        with served(Path(folder), _SETTINGS) as daemon:
            daemon.control("other", "load")
            return [
                *_beside("iris", IRIS_BODY, daemon, other),
                *_beside("encoder", _ENCODER_BODY, daemon, other),
            ]


def _beside(name: str, body: bytes, daemon: Daemon, other: Path) -> list[Figure]:
    """Latencies of one model beside three kinds of neighbours."""
    url = infer_url(daemon, name)
    wrk.post(url, body, 1, 5)  # so that its weights are packed
    raw: dict[str, list[float]] = {"nothing else": [], "loading": [], "preparing": []}
    for _ in range(_ROUNDS):
        raw["nothing else"].append(wrk.post(url, body, 1, 2).median_us)
        with _again_and_again(lambda: _load(daemon)):
            raw["loading"].append(wrk.post(url, body, 1, 2).median_us)
        with _again_and_again(lambda: _prepare(daemon, other)):
            raw["preparing"].append(wrk.post(url, body, 1, 2).median_us)
    return [
        *(
            Figure(what=f"{name}, median beside {what}", value=median(took), unit="us")
            for what, took in raw.items()
        ),
        *(
            Figure(
                what=f"{name}, {what} / nothing else",
                value=ratio(raw[what], raw["nothing else"]),
                unit="",
                bound=at_most(1.25),
                raw=raw,
            )
            for what in ("loading", "preparing")
        ),
    ]


def _load(daemon: Daemon) -> None:
    daemon.control("other", "load")
    daemon.control("other", "unload")


def _prepare(daemon: Daemon, model: Path) -> None:
    """Load a model that nobody has seen before."""
    with model.open("ab") as file:
        file.write(_DOC_STRING % (file.tell() % 10**8))
    _load(daemon)


@contextmanager
def _again_and_again(work: Callable[[], None]) -> Iterator[None]:
    """Do something without a pause, for the duration of the block."""
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
