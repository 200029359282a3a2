"""Adapters from a library that runs models to one small interface."""

from collections.abc import Callable, Sequence
from typing import Protocol

from snoozeml.core.plan import WorkerSpec
from snoozeml.wire.tensors import Array, Tensors


class Engine(Protocol):
    """A loaded model. It is never closed: the end of the process gives everything back."""

    @property
    def device(self) -> str:
        """Where the model runs: `cpu`, `cuda:0`, …"""

    @property
    def is_packable(self) -> bool:
        """Whether `pack` would make runs noticeably faster."""

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> Sequence[Array]:
        """Run the model once and return the named outputs, in that order.

        Args:
            inputs: one array for every input of the signature, in its datatype.

        Raises:
            SnoozeError: the model refused or failed, in words that are safe to show. Any other
                exception counts as a bug in the engine.
        """

    def pack(self) -> None:
        """Make later runs faster, while runs go on; answers stay the same.

        Called at most once, from another thread than `infer`. It gives way to runs where it can.

        Raises:
            SnoozeError: it was not possible, and the model is as it was.
        """


LoadEngine = Callable[[WorkerSpec], Engine]


def load_engine(spec: WorkerSpec) -> Engine:
    """Load a model with the engine that its plan's format asks for.

    Raises:
        ModelFailed: the model cannot be loaded, or not on this device.
        OutOfMemory: there is not enough memory for it.
    """
    # A worker imports no other engine than its own.
    if spec.plan.format == "python":
        from snoozeml.worker.engines.python.engine import PythonEngine

        return PythonEngine(spec)
    from snoozeml.worker.engines.onnx import OnnxEngine

    return OnnxEngine(spec)
