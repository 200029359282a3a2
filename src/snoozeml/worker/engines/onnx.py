"""ONNX Runtime as an engine."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnxruntime

from snoozeml.core.plan import Plan, WorkerSpec
from snoozeml.errors import InferenceFailed, ModelFailed, OutOfMemory, SnoozeError
from snoozeml.wire.tensors import Array, Tensors

_ERRORS_ONLY: Final = 3

_PROVIDERS: Final = {
    "cuda": ("CUDAExecutionProvider", "onnxruntime-gpu, CUDA and cuDNN"),
    "tensorrt": ("TensorrtExecutionProvider", "onnxruntime-gpu, CUDA and TensorRT"),
    "coreml": ("CoreMLExecutionProvider", "onnxruntime for macOS"),
}
"""Device → its execution provider, and what must be installed for it."""

_CPU: Final = "CPUExecutionProvider"
_OUT_OF_MEMORY: Final = re.compile(
    r"bad_alloc|failed to allocate memory|out of memory", re.IGNORECASE
)
_LABEL: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_FOLDERS: Final = re.compile(r"(?<![\w.])/(?:[^\s/:'\"]+/)+")


class OnnxEngine:
    """A session of ONNX Runtime on a plan, or on the original file where there is no plan.

    Raises:
        ModelFailed: the session cannot be made, or not on the device that was asked for.
        OutOfMemory: there is not enough memory for it.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        _refuse_bf16(spec.plan)
        provider, options = _provider(spec.device)
        try:
            session = onnxruntime.InferenceSession(
                spec.plan.graph,
                _session_options(spec),
                providers=[(provider, options), _CPU] if provider != _CPU else [_CPU],
            )
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise _named(error, ModelFailed, spec.plan.graph) from error
        self.device: Final = _device(spec.device, session.get_providers()[0])
        # The session's own `run` checks names again, which have been checked, and takes longer for
        # that than a small model for its work.
        self._run: Final = getattr(session, "_sess", session).run
        self._graph: Final = spec.plan.graph

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> Sequence[Array]:
        try:
            found: Sequence[Array] = self._run(outputs, inputs, None)
        except Exception as error:  # they share none here either
            raise _named(error, InferenceFailed, self._graph) from error
        return found


def _session_options(spec: WorkerSpec) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = spec.threads
    options.inter_op_num_threads = 1
    # Threads that spin for work use a core each while nothing is asked.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # The arena keeps the memory of the largest run for ever, and patterns keep one plan of it per
    # shape; without them the same models were as fast (within 2 %) and up to 30 MB smaller.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    if spec.plan.prepared:
        # A plan is optimised already, and packing its weights would copy what is only mapped.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _refuse_bf16(plan: Plan) -> None:
    for spec in (*plan.signature.inputs, *plan.signature.outputs):
        if spec.datatype == "BF16":
            raise ModelFailed(
                f"{spec.name!r} is BF16, which ONNX Runtime cannot exchange with Python;"
                " export the model with FP32 or FP16 inputs and outputs"
            )


def _provider(device: str) -> tuple[str, dict[str, str]]:
    """The execution provider for a device, and its options.

    `auto` is CUDA where the installed ONNX Runtime has it, else the CPU.
    """
    available = onnxruntime.get_available_providers()
    kind, _, index = device.partition(":")
    if device == "auto":
        kind = "cuda" if _PROVIDERS["cuda"][0] in available else "cpu"
    if kind == "cpu":
        return _CPU, {}
    provider, needs = _PROVIDERS[kind]
    if provider not in available:
        raise ModelFailed(f"device {device!r} is not available; install {needs}, or use 'auto'")
    return provider, {"device_id": index} if index else {}


def _device(asked: str, provider: str) -> str:
    """What the model runs on in the end: ONNX Runtime falls back to the CPU without an error."""
    if provider == _CPU:
        if asked not in ("auto", "cpu"):
            needs = _PROVIDERS[asked.partition(":")[0]][1]
            raise ModelFailed(f"device {asked!r} could not be started; it needs {needs}")
        return "cpu"
    if asked in ("auto", "cuda"):
        return "cuda:0"
    return asked


def _named(error: Exception, otherwise: type[SnoozeError], graph: str) -> SnoozeError:
    """The engine's error with a code, in one line and without the paths of this machine."""
    text = str(error)
    first_line = _LABEL.sub("", text.partition("\n")[0])
    message = _FOLDERS.sub("", first_line.replace(f"{Path(graph).parent}/", ""))
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(text):
        return OutOfMemory(f"out of memory: {message}")
    return otherwise(f"ONNX Runtime: {message}")
