"""Opening ONNX Runtime sessions the three ways that preparing needs."""

import re
from pathlib import Path
from typing import Any, Final

import onnxruntime as ort
from onnx import ModelProto

from snoozeml.core.paths import without_folders
from snoozeml.errors import ModelFailed, OutOfMemory, SnoozeError

GRAPH_FILE: Final = "plan.onnx"
WEIGHTS_FILE: Final = "weights"
PACKED_GRAPH_FILE: Final = "packed.onnx"
PACKED_WEIGHTS_FILE: Final = "packed-weights"
SMALLEST_OUTSIDE_BYTES: Final = 1024  # smaller tensors are quicker to parse than to map
WEIGHTS_FOLDER_ENTRY: Final = "session.model_external_initializers_file_folder_path"
_ERRORS_ONLY: Final = 3

# A few nodes can describe a constant of any size, which must not fill memory and disk. From a
# model's own bytes the largest come by turning integers of 8 bits into floats.
_LARGEST_CONSTANT_ENTRY: Final = "optimization.constant_folding_max_output_size_in_bytes"
_SMALL_CONSTANT_BYTES: Final = 1 << 26
_LARGEST_GROWTH: Final = 4

Session = Any
"""An `onnxruntime.InferenceSession`; the library carries no types."""


def optimise(model: Path, folder: Path, model_bytes: int) -> Session:
    """Open a model with all optimisations, and write the resulting graph and weights to `folder`.

    Args:
        model_bytes: what the model takes, weights and all.

    The weights file holds those of matrix products twice: as they are, and packed. The result suits
    this processor only: both packing and level ALL's convolutions depend on its vector width.
    """
    options = _options(ort.GraphOptimizationLevel.ORT_ENABLE_ALL, packed=True)
    most_bytes = _SMALL_CONSTANT_BYTES + _LARGEST_GROWTH * model_bytes
    options.add_session_config_entry(_LARGEST_CONSTANT_ENTRY, str(most_bytes))
    _write_to(folder / GRAPH_FILE, WEIGHTS_FILE, options)
    return _open(model, options)


def write_packed(folder: Path, weights_folder: Path | None) -> None:
    """Write a plan a second time, with all its weights, packed as well, in a file of their own."""
    options = _options(ort.GraphOptimizationLevel.ORT_DISABLE_ALL, packed=True)
    _write_to(folder / PACKED_GRAPH_FILE, PACKED_WEIGHTS_FILE, options)
    _open_plan(folder, weights_folder, options)


def _write_to(graph: Path, weights_name: str, options: Any) -> None:
    """Have a session write what it opens."""
    options.optimized_model_filepath = str(graph)
    prefix = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{prefix}_file_name", weights_name)
    options.add_session_config_entry(f"{prefix}_min_size_in_bytes", str(SMALLEST_OUTSIDE_BYTES))
    options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")


def open_plan(folder: Path, weights_folder: Path | None = None) -> Session:
    """Open a finished plan, the way a worker does; see `core.plan.Plan` for the folders."""
    return _open_plan(folder, weights_folder, _options(ort.GraphOptimizationLevel.ORT_DISABLE_ALL))


def _open_plan(folder: Path, weights_folder: Path | None, options: Any) -> Session:
    graph: Path | bytes = folder / GRAPH_FILE
    if weights_folder is not None:
        options.add_session_config_entry(WEIGHTS_FOLDER_ENTRY, str(weights_folder))
        graph = (folder / GRAPH_FILE).read_bytes()  # for a path, the engine looks beside the graph
    return _open(graph, options)


def open_plainly(model: Path) -> Session:
    """Open a model that could not be optimised ahead of time.

    Raises:
        ModelFailed: the engine cannot load it.
        OutOfMemory: there was not enough memory to load it.
    """
    try:
        return _open(model, _options(ort.GraphOptimizationLevel.ORT_ENABLE_ALL))
    except Exception as error:  # the engine's errors share no base class
        raise failure(error, f"the engine cannot load {model.name}", model.parent) from error


def open_model(model: ModelProto) -> Session:
    """Open a model that is in memory, with all its tensors, as it is."""
    options = _options(ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return _open(model.SerializeToString(), options)


def failure(error: Exception, what: str, *folders: Path) -> SnoozeError:
    """The engine's error as ours.

    Args:
        what: says what could not be done.
        folders: of this machine, that the engine may have named.
    """
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return OutOfMemory(f"out of memory: {what}")
    return ModelFailed(f"{what}: {without_folders(reason(error), *folders)}")


def reason(error: Exception) -> str:
    """An error's text as one line, without the engine's status codes."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(str(error).split()))
    return text or type(error).__name__


def _options(level: Any, *, packed: bool = False) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1  # other models are being served on the other cores
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.disable_prepacking", str(int(not packed)))
    return options


def _open(model: Path | bytes, options: Any) -> Session:
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
