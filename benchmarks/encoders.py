"""A real encoder, all-MiniLM-L6-v2: woken, and asked for many texts of mixed length."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from examples.sample_models import MINILM, unpack

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.stand import infer_url, milliseconds, served
from benchmarks.wrk import post
from e2e.client import infer_body, tensor
from e2e.daemon import Daemon, path
from e2e.processes import private_bytes
from snoozeml.core.plan import PLAN_FILE, PLANS_FOLDER

_STARTS: Final = 21
_CROWD: Final = 64
_BATCH: Final = 16
_ROUNDS: Final = 5
_SECONDS: Final = 5
_OUTPUT: Final = "sentence_embedding"
_MIB: Final = 2**20


def measure() -> list[Figure]:
    texts = _texts(_BATCH * 16)
    bodies = [_body(text) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        unpack(MINILM, Path(folder))
        os.sync()  # pages that have not been written yet would count as the worker's own
        with served(Path(folder), f"[defaults]\nmax_batch_size = {_BATCH}\n") as daemon:
            assert daemon.request("POST", path("minilm", "infer"), bodies[0]).status == 200
            starts_ms, private = _starts(daemon, bodies[0])
            url = infer_url(daemon, "minilm")
            post(url, bodies, _CROWD, 5)  # by then it is packed
            rounds = [
                (post(url, bodies, _CROWD, _SECONDS).requests_per_s, *_bare(daemon, texts))
                for _ in range(_ROUNDS)
            ]
    served_s, bare_s, padded_s = (list(rates) for rates in zip(*rounds, strict=True))
    raw = {"served": served_s, "bare": bare_s, "padded": padded_s}
    share = median(one / other for one, other in zip(served_s, bare_s, strict=True))
    gain = median(one / other for one, other in zip(bare_s, padded_s, strict=True))
    return [
        Figure(
            what="first answer of sleeping MiniLM, median",
            value=median(starts_ms),
            unit="ms",
            bound=at_most(60),
            raw={"starts": starts_ms},
        ),
        Figure(
            what="private memory of its worker before packing",
            value=median(private),
            unit="MiB",
            bound=at_most(40),
            raw={"private": private},
        ),
        Figure(what=f"{_CROWD} connections, mixed texts", value=median(served_s), unit="texts/s"),
        Figure(what="the plan in a bare loop, full batches", value=median(bare_s), unit="texts/s"),
        Figure(what="served / bare", value=share, unit="", bound=at_least(0.85), raw=raw),
        Figure(what="padding-free / padded", value=gain, unit="", bound=at_least(1.8)),
    ]


def _texts(count: int) -> list[list[int]]:
    """Token ids of made-up texts; their lengths are distributed like those of real ones."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(np.log(24), 0.8, count), 3, 256).astype(int)
    return [[101, *random.integers(1000, 20000, n - 2).tolist(), 102] for n in lengths]


def _body(text: list[int]) -> bytes:
    request = json.loads(infer_body(tensor("input_ids", [1, len(text)], text)))
    return json.dumps(request | {"outputs": [_OUTPUT]}).encode()


def _starts(daemon: Daemon, body: bytes) -> tuple[list[float], list[float]]:
    """How long waking takes, and what the worker then has for itself: ms and MiB."""
    took_s: list[float] = []
    private: list[float] = []
    for _ in range(_STARTS):
        daemon.control("minilm", "unload")
        started = time.perf_counter()
        assert daemon.request("POST", path("minilm", "infer"), body).status == 200
        took_s.append(time.perf_counter() - started)
        private += [private_bytes(pid) / _MIB for pid in daemon.workers()]
    return milliseconds(took_s), private


def _bare(daemon: Daemon, texts: list[list[int]]) -> tuple[float, float]:
    """Texts per second of the daemon's plan in a loop, without and with padding computed."""
    (graph,) = (daemon.cache_dir / PLANS_FOLDER).glob("*/plan.onnx")
    folder = json.loads(graph.with_name(PLAN_FILE).read_bytes())["plan"]["weights_folder"]
    command = [sys.executable, "-m", "benchmarks.bare_loop", str(graph), folder]
    run = subprocess.run(
        command, input=json.dumps(texts), check=True, capture_output=True, text=True
    )
    found = json.loads(run.stdout)
    return found["free"], found["padded"]
