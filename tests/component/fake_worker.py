"""`python fake_worker.py --fd N`: a worker with the fake engine, whose plan says how it behaves.

`cannot load` and `explodes` are for loading; `sleeps` makes each run take 0.2 s, `hangs`
lets it take for ever.
"""

import argparse
import socket
import time
from collections.abc import Sequence

from component.fake_engine import FakeEngine
from snoozeml.core.plan import WorkerSpec
from snoozeml.errors import ModelFailed
from snoozeml.wire.tensors import Array, Tensors
from snoozeml.worker.main import serve

_RUNS_S = {"sleeps": 0.2, "hangs": 3600.0}


class SlowEngine(FakeEngine):
    def __init__(self, run_s: float) -> None:
        super().__init__()
        self._run_s = run_s

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> list[Array]:
        print("noise on standard output", flush=True)
        time.sleep(self._run_s)
        return super().infer(inputs, outputs)


def load(spec: WorkerSpec) -> FakeEngine:
    how = spec.plan.graph
    if how == "cannot load":
        raise ModelFailed("the weights are missing")
    if how == "explodes":
        raise RuntimeError("boom")
    return SlowEngine(_RUNS_S[how]) if how in _RUNS_S else FakeEngine(how)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    serve(socket.socket(fileno=parser.parse_args().fd), load)
