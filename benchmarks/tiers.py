"""What a woken encoder of 90 MB costs before, while and after its weights are packed."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from benchmarks.figures import Figure, at_most
from benchmarks.rounds import ratio
from benchmarks.stand import served
from e2e.client import Connection, infer_body, tensor
from e2e.daemon import Daemon, path
from models import encoder_model
from snoozeml.prepare.session import GRAPH_FILE, optimise

_ROUNDS: Final = 9
_TOKENS: Final = list(range(101, 117))
_BODY: Final = infer_body(
    tensor("input_ids", [1, len(_TOKENS)], _TOKENS),
    tensor("attention_mask", [1, len(_TOKENS)], [1] * len(_TOKENS)),
    tensor("token_type_ids", [1, len(_TOKENS)], [0] * len(_TOKENS)),
)
_UNPACKED_RUNS: Final = 31  # after the first; the next one starts packing
_PACKING_RUNS: Final = 70  # it is over by then
_PACKED_RUNS: Final = 70


class Life(NamedTuple):
    """A worker's answers, in milliseconds: the first from request to answer, later ones their runs.

    The way to a worker and back costs every tier the same; `throughput` measures it.
    """

    first: float
    unpacked: list[float]
    packing: list[float]
    packed: list[float]


class Bare(msgspec.Struct):
    """Sessions with a worker's settings, in a process with its libraries imported; milliseconds."""

    unpacked_first: float
    unpacked: float
    packed: float


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan")
        plan.mkdir()
        model = encoder_model(
            Path(folder, "encoder.onnx"), layers=6, hidden=384, vocab=30522, heads=12
        )
        optimise(model, plan, model.stat().st_size)
        settings = "[server]\nspare_linger_secs = 600\n"
        with served(Path(folder), settings) as daemon, daemon.connect() as connection:
            _life(daemon, connection)  # prepares it
            rounds = [(_bare(plan / GRAPH_FILE), _life(daemon, connection)) for _ in range(_ROUNDS)]
    bare, lives = [one for one, _ in rounds], [one for _, one in rounds]
    return [*_first(bare, lives), *_swap(lives), *_warm(bare, lives)]


def _first(bare: list[Bare], lives: list[Life]) -> list[Figure]:
    raw = {"snooze": [one.first for one in lives], "bare": [one.unpacked_first for one in bare]}
    return [
        Figure(what="first answer of the woken encoder", value=median(raw["snooze"]), unit="ms"),
        Figure(
            what="unpacked session, fresh process, made and run",
            value=median(raw["bare"]),
            unit="ms",
        ),
        Figure(
            what="first answer / unpacked session",
            value=ratio(raw["snooze"], raw["bare"]),
            unit="",
            bound=at_most(1.5),
            raw=raw,
        ),
    ]


def _swap(lives: list[Life]) -> list[Figure]:
    """As many requests later, when nothing happens any more, show what the machine does to some."""
    raw = {
        "packing": [max(one.packing) / median(one.unpacked) for one in lives],
        "packed": [max(one.packed) / median(one.packed) for one in lives],
    }
    return [
        Figure(
            what="slowest request while packing / median before",
            value=median(raw["packing"]),
            unit="",
            bound=at_most(2),
            raw=raw,
        ),
        Figure(
            what=f"slowest of {_PACKED_RUNS} afterwards / their median",
            value=median(raw["packed"]),
            unit="",
        ),
    ]


def _warm(bare: list[Bare], lives: list[Life]) -> list[Figure]:
    raw = {
        "unpacked": [median(one.unpacked) for one in lives],
        "packed": [median(one.packed) for one in lives],
        "bare unpacked": [one.unpacked for one in bare],
        "bare packed": [one.packed for one in bare],
    }
    return [
        *(
            Figure(what=f"warm, {name}", value=median(took), unit="ms")
            for name, took in raw.items()
        ),
        Figure(
            what="warm, packed / bare packed",
            value=ratio(raw["packed"], raw["bare packed"]),
            unit="",
            bound=at_most(1.1),
            raw=raw,
        ),
    ]


def _life(daemon: Daemon, connection: Connection) -> Life:
    daemon.control("encoder", "unload")
    started = time.perf_counter()
    _ask(connection)
    first_ms = (time.perf_counter() - started) * 1000
    runs = (_UNPACKED_RUNS, _PACKING_RUNS, _PACKED_RUNS)
    return Life(first_ms, *([_ask(connection) for _ in range(n)] for n in runs))


def _ask(connection: Connection) -> float:
    reply = connection.request("POST", path("encoder", "infer"), _BODY)
    assert reply.status == 200, reply
    took_ms: float = reply.json()["duration_ms"]
    return took_ms - float(reply.headers["x-snooze-queue-ms"])


_BARE: Final = """
import json, sys, time
from statistics import median
import numpy, onnxruntime
path, tokens = sys.argv[1], json.loads(sys.argv[2])
ids = numpy.array([tokens], dtype=numpy.int64)
feeds = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
def session(packed):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.disable_prepacking", "0" if packed else "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
def ms(started):
    return (time.perf_counter() - started) * 1000
def warm(session):
    took = []
    for _ in range(40):
        started = time.perf_counter()
        session.run(None, feeds)
        took.append(ms(started))
    return median(took)
started = time.perf_counter()
unpacked = session(packed=False)
unpacked.run(None, feeds)
first = ms(started)
packed = session(packed=True)
print(json.dumps(dict(unpacked_first=first, unpacked=warm(unpacked), packed=warm(packed))))
"""


def _bare(graph: Path) -> Bare:
    command = [sys.executable, "-c", _BARE, str(graph), json.dumps(_TOKENS)]
    run = subprocess.run(command, check=True, capture_output=True)
    return msgspec.json.decode(run.stdout, type=Bare)
