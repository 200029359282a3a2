"""From asleep to the first answer, over HTTP, for an encoder of 90 MB."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, at_most
from benchmarks.stand import milliseconds, served
from e2e.client import infer_body, tensor
from e2e.daemon import path
from models import encoder_model

_STARTS: Final = 21
_TOKENS: Final = list(range(101, 117))
_BODY: Final = infer_body(
    tensor("input_ids", [1, len(_TOKENS)], _TOKENS),
    tensor("attention_mask", [1, len(_TOKENS)], [1] * len(_TOKENS)),
    tensor("token_type_ids", [1, len(_TOKENS)], [0] * len(_TOKENS)),
)


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        model = encoder_model(
            Path(folder, "encoder.onnx"), layers=6, hidden=384, vocab=30522, heads=12
        )
        spare = _starts_ms(Path(folder), "[server]\nspare_linger_secs = 600\n")
        fresh = _starts_ms(Path(folder), "[server]\nspare_linger_secs = 0\n")
        bare = _bare_sessions_ms(model)
    ratio, fresh_ratio = median(spare) / median(bare), median(fresh) / median(bare)
    return [
        Figure(
            what="first answer, forked from the spare, median",
            value=median(spare),
            unit="ms",
            bound=at_most(60),
            raw={"spare": spare},
        ),
        Figure(
            what="first answer, no spare, median",
            value=median(fresh),
            unit="ms",
            bound=at_most(250),
            raw={"fresh": fresh},
        ),
        Figure(
            what="InferenceSession of the unprepared file and first run, in process, median",
            value=median(bare),
            unit="ms",
            raw={"bare": bare},
        ),
        Figure(what="spare / in process", value=ratio, unit="", bound=at_most(0.5)),
        Figure(what="no spare / in process", value=fresh_ratio, unit=""),
    ]


def _starts_ms(models_dir: Path, settings: str) -> list[float]:
    took_s: list[float] = []
    with served(models_dir, settings) as daemon, daemon.connect() as connection:
        assert daemon.request("POST", path("encoder", "infer"), _BODY).status == 200  # prepares it
        for _ in range(_STARTS):
            daemon.control("encoder", "unload")
            started = time.perf_counter()
            reply = connection.request("POST", path("encoder", "infer"), _BODY)
            took_s.append(time.perf_counter() - started)
            assert "x-snooze-cold-start-ms" in reply.headers, reply
    return milliseconds(took_s)


_BARE: Final = """
import json, sys, time
import numpy, onnxruntime
path, tokens, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
ids = numpy.array([tokens], dtype=numpy.int64)
feeds = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
took_s = []
for _ in range(count):
    started = time.perf_counter()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
    took_s.append(time.perf_counter() - started)
    del session
print(json.dumps(took_s))
"""


def _bare_sessions_ms(model: Path) -> list[float]:
    """What a server that loads in its own process would need, its libraries imported already."""
    arguments = [str(model), json.dumps(_TOKENS), str(_STARTS)]
    command = [sys.executable, "-c", _BARE, *arguments]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return milliseconds(json.loads(run.stdout))
