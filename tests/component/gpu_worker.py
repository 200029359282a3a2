"""`python gpu_worker.py --fd N`: a real worker that takes the CPU for a GPU, and says so."""

import argparse
import socket
from collections.abc import Sequence

from msgspec.structs import replace

from snoozeml.core.plan import WorkerSpec
from snoozeml.wire.tensors import Array, Tensors
from snoozeml.worker.engines.onnx import OnnxEngine
from snoozeml.worker.main import serve


class GpuEngine:
    """An engine on the CPU that believes it is where it was asked to be; `auto` is a GPU."""

    is_packable = False

    def __init__(self, spec: WorkerSpec) -> None:
        self._engine = OnnxEngine(replace(spec, device="cpu"))
        self.device = "cuda:0" if spec.device in ("auto", "cuda") else spec.device

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> Sequence[Array]:
        return self._engine.infer(inputs, outputs)

    def pack(self) -> None:
        raise AssertionError("it is not packable")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    serve(socket.socket(fileno=parser.parse_args().fd), GpuEngine)
