"""Many models in little room: what a change of places takes, and what sleeping models cost."""

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, at_most
from benchmarks.stand import milliseconds, served
from e2e import multitude, processes
from e2e.client import infer_body, tensor
from e2e.daemon import Daemon, path
from e2e.eventually import eventually
from e2e.footprint import cpu_share, is_alone
from models import encoder_model

_MB: Final = 10**6
_CHANGES: Final = 21
_IDLE_S: Final = 20
_TOKENS: Final = 16
_BODY: Final = infer_body(
    tensor("input_ids", [1, _TOKENS], list(range(101, 101 + _TOKENS))),
    tensor("attention_mask", [1, _TOKENS], [1] * _TOKENS),
    tensor("token_type_ids", [1, _TOKENS], [0] * _TOKENS),
)


def measure() -> list[Figure]:
    return [*_changes(), *_multitude()]


def _changes() -> list[Figure]:
    """The same two models, with room for both and with room for one."""
    with tempfile.TemporaryDirectory() as folder:
        for seed, name in enumerate(("this", "that")):
            _encoder(Path(folder, f"{name}.onnx"), seed)
        limit = "[defaults]\nmin_residency_secs = 0\nmax_loaded_models = "
        with served(Path(folder), f"{limit}2\n") as daemon:
            free_ms = _first_answers_ms(daemon, unload=True)
        with served(Path(folder), f"{limit}1\n") as daemon:
            taken_ms = _first_answers_ms(daemon, unload=False)
    change = median(taken_ms) / median(free_ms)
    raw = {"free": free_ms, "taken": taken_ms}
    return [
        Figure(what="first answer, a place is free, median", value=median(free_ms), unit="ms"),
        Figure(
            what="first answer, another model must leave first, median",
            value=median(taken_ms),
            unit="ms",
        ),
        Figure(what="taken / free", value=change, unit="", bound=at_most(2), raw=raw),
    ]


def _first_answers_ms(daemon: Daemon, *, unload: bool) -> list[float]:
    """Two models asked by turns, each asleep when its turn comes."""
    took_s: list[float] = []
    with daemon.connect() as connection:
        for turn in range(2 + _CHANGES):
            this, other = ("this", "that") if turn % 2 else ("that", "this")
            if unload:
                daemon.control(other, "unload")
            started = time.perf_counter()
            reply = connection.request("POST", path(this, "infer"), _BODY)
            took_s.append(time.perf_counter() - started)
            assert "x-snooze-cold-start-ms" in reply.headers, reply
    return milliseconds(took_s[2:])  # the first two were prepared as well


def _multitude() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        with served(Path(folder), multitude.SETTINGS) as daemon:
            empty_bytes = processes.resident_bytes(daemon.pid)
        multitude.register(Path(folder))
        with served(Path(folder), multitude.SETTINGS) as daemon:
            multitude.use_some(daemon)
            listing_ms = milliseconds(multitude.listing_s(daemon))
            tree = daemon.tree()
            eventually(lambda: cpu_share(tree, 0.5) < 0.001, "the loading is over")
            share = cpu_share(tree, _IDLE_S)
            multitude.unload_all(daemon)
            eventually(lambda: is_alone(daemon), "the spare leaves")
            grown_bytes = processes.resident_bytes(daemon.pid) - empty_bytes
    where = f"{multitude.REGISTERED} models"
    return [
        Figure(
            what=f"{where}, {multitude.USED} used, asleep again: growth of the daemon",
            value=grown_bytes / _MB,
            unit="MB",
            bound=at_most(20),
        ),
        Figure(
            what=f"{where}, {multitude.PLACES} awake: the list of all, median",
            value=median(listing_ms),
            unit="ms",
            bound=at_most(50),
            raw={"listing": listing_ms},
        ),
        Figure(
            what=f"{where}, {multitude.PLACES} awake: CPU of the whole tree over {_IDLE_S} s",
            value=share * 100,
            unit="%",
            bound=at_most(0.1),
        ),
    ]


def _encoder(file: Path, seed: int) -> None:
    encoder_model(file, layers=6, hidden=384, vocab=30522, heads=12, seed=seed)
