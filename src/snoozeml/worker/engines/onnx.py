"""ONNX Runtime as an engine."""

import re
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state

from snoozeml.core.paths import without_folders
from snoozeml.core.plan import Plan, WorkerSpec
from snoozeml.errors import InferenceFailed, InvalidInput, ModelFailed, OutOfMemory, SnoozeError
from snoozeml.wire.tensors import Array, Tensors
from snoozeml.worker.politeness import NOBODY_WAITS, SOMEBODY_WAITS, run_politely

_ERRORS_ONLY: Final = 3
_WEIGHTS_FOLDER_ENTRY: Final = "session.model_external_initializers_file_folder_path"

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
_OUTSIDE_A_TABLE: Final = "element out of data bounds"  # a token id that the model does not have
_LABEL: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")

_SMALLEST_GRAPH: Final = (
    b'\x08\x0a:7\x0a\x10\x0a\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01'
    b"\x12\x04\x0a\x02\x08\x01b\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01B\x04\x0a\x00\x10\x14"
)
"""An ONNX model: `y = x`, one float each."""


def warm_up() -> None:
    """Do once what ONNX Runtime does at the first session of a process; leaves no thread behind."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    onnxruntime.InferenceSession(_SMALLEST_GRAPH, options, providers=[_CPU])


class OnnxEngine:
    """A session of ONNX Runtime on a plan, or on the original file where there is no plan.

    A plan's weights are used as they are at first, which makes loading a matter of milliseconds.
    `pack` changes over to packed copies of them, which run faster, and are mapped and shared like
    the others; to find them takes longer.

    Raises:
        ModelFailed: the session cannot be made, or not on the device that was asked for.
        OutOfMemory: there is not enough memory for it.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        _refuse_bf16(spec.plan)
        self._spec: Final = spec
        self._provider = _provider(spec.device)
        session = self._open(packed=False)
        if spec.device == "auto" and session.get_providers()[0] != self._provider[0]:
            # ONNX Runtime has fallen back to the CPU, but not on what suits the CPU.
            self._provider = (_CPU, {})
            session = self._open(packed=False)
        self.device: Final = _device(spec.device, session.get_providers()[0])
        self.is_packable: Final = spec.plan.packed_graph is not None and self.device == "cpu"
        self._run = session.run
        self._running: Final = threading.Lock()

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> Sequence[Array]:
        try:
            with self._running:
                found: Sequence[Array] = self._run(outputs, inputs, None)
        except Exception as error:  # they share none here either
            kind = InvalidInput if _OUTSIDE_A_TABLE in str(error) else InferenceFailed
            raise _named(error, kind, self._spec.plan.graph) from error
        return found

    def pack(self) -> None:
        session = self._open(packed=True)
        leaving, self._run = [self._run], session.run
        with self._running:  # no run has the old session now, so none has to give it back
            pass
        run_politely(leaving.clear, NOBODY_WAITS)

    def _open(self, *, packed: bool) -> Any:
        """A session without the checks that its public class makes at each run.

        They have been made, and take longer than a small model's run.
        """
        provider, provider_options = self._provider
        plan, on_cpu = self._spec.plan, provider == _CPU
        options = _session_options(self._spec, prepared=plan.prepared and on_cpu, packed=packed)
        try:
            graph = _graph(plan, on_cpu=on_cpu, packed=packed)
            if on_cpu:
                return _open_on_cpu(graph, options, NOBODY_WAITS if packed else SOMEBODY_WAITS)
            providers = [(provider, provider_options), _CPU]
            session = onnxruntime.InferenceSession(graph, options, providers=providers)
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise _named(error, ModelFailed, self._spec.plan.graph) from error
        return session._sess


def _graph(plan: Plan, *, on_cpu: bool, packed: bool) -> str | bytes:
    """For a path, the engine looks for weights beside the graph, whatever else it is told."""
    if packed and plan.packed_graph is not None:
        return plan.packed_graph
    if plan.source is not None and not on_cpu:
        return plan.source
    return plan.graph if plan.weights_folder is None else Path(plan.graph).read_bytes()


def _open_on_cpu(graph: str | bytes, options: Any, niceness: int) -> Any:
    """Make a session with work that gives way to others, though its runs will not.

    The first step reads the file and starts the threads for runs, which keep the priority that they
    are started with. The second optimises and packs; for a plan it is nearly all there is to do.
    """
    session = onnxruntime_pybind11_state.InferenceSession(
        options, graph, isinstance(graph, str), False
    )
    run_politely(partial(session.initialize_session, [_CPU], [{}], set()), niceness)
    return session


def _session_options(spec: WorkerSpec, *, prepared: bool, packed: bool) -> Any:
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
    if prepared:  # it is optimised already
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", str(int(not packed)))
    if spec.plan.weights_folder is not None and not packed:
        options.add_session_config_entry(_WEIGHTS_FOLDER_ENTRY, spec.plan.weights_folder)
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
    message = without_folders(first_line, Path(graph).parent)
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(text):
        return OutOfMemory(f"out of memory: {message}")
    return otherwise(f"ONNX Runtime: {message}")
