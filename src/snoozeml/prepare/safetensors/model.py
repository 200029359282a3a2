"""Turning a folder with a safetensors checkpoint and its config.json into a plan.

The graph is built from the architecture, with operators that are fused already; nothing is left to
optimise. Its weights stay in the checkpoint, where workers map them.
"""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from snoozeml.core.plan import FileStamp, Plan, PrepareJob, PrepareOutcome
from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.prepare.int8.conversion import convert
from snoozeml.prepare.making import cannot_use, find_or_make
from snoozeml.prepare.packing import PackedWeights, packed_weights
from snoozeml.prepare.safetensors.architectures import find
from snoozeml.prepare.safetensors.checkpoint import INDEX_FILE, read_checkpoint, weight_files
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph
from snoozeml.prepare.safetensors.heads import states
from snoozeml.prepare.safetensors.sentence import (
    MODULES_FILE,
    Module,
    add_embedding,
    module_tensors,
    read_modules,
)
from snoozeml.prepare.session import (
    GRAPH_FILE,
    PACKED_GRAPH_FILE,
    PACKED_WEIGHTS_FILE,
    Session,
    failure,
    open_plan,
    write_packed,
)
from snoozeml.prepare.source import Source
from snoozeml.prepare.trials import trials_of
from snoozeml.wire.tensors import DTYPES, Array

CONFIG_FILE: Final = "config.json"
_LABELS: Final = "id2label"
_TRIAL_LENGTH: Final = 8
_DO_NOT_FIT: Final = "the weights do not fit the architecture"


def prepare(job: PrepareJob) -> PrepareOutcome:
    """Find or make the plan of a checkpoint.

    Args:
        job: its `model_path` is the folder, or one safetensors file in it.

    Raises:
        UnsupportedArchitecture: it is none of those that we can build.
        ModelFailed: files are missing, broken, or do not fit the architecture.
        OutOfMemory: there was not enough memory to try it.
    """
    path, folder = Path(job.model_path), _folder(job)
    try:
        # A file that appears in the folder may change what the model is.
        stamp = FileStamp.of(folder)
        checkpoint, modules = weight_files(path), read_modules(folder)
        source = _source(path, folder, checkpoint, modules)
        outcome = find_or_make(job, source, partial(_make_plan, job, checkpoint, modules))
    except OSError as error:
        raise cannot_use(error, job) from error
    assert outcome.plan is not None
    plan = _with_weights_of(folder, outcome.plan)
    return msgspec.structs.replace(outcome, plan=plan, stamps=(stamp, *outcome.stamps))


def _with_weights_of(folder: Path, plan: Plan) -> Plan:
    """Copies of a model share a plan; each maps the weights in a folder of its own."""
    if plan.weights_folder is None:
        return plan
    weights_folder = os.path.normpath(folder.resolve() / plan.weights_folder)
    return msgspec.structs.replace(plan, weights_folder=weights_folder)


def _seen_from(folder: Path, path: Path) -> str:
    """Where a path leads, as copies of the folder have it as well."""
    return os.path.relpath(path.resolve(), folder.resolve())


def _folder(job: PrepareJob) -> Path:
    path = Path(job.model_path)
    return path if path.is_dir() else path.parent


def _source(path: Path, folder: Path, checkpoint: list[Path], modules: list[Module]) -> Source:
    listed = [folder / name for name in (INDEX_FILE, MODULES_FILE) if (folder / name).is_file()]
    inner = [file for module in modules for file in (*module.files, *module.weights)]
    files = [folder / CONFIG_FILE, *checkpoint, *listed, *inner]
    source = Source.of(path, files)
    # The plan refers to the files where they are, seen from the folder.
    places = b"\0".join(os.fsencode(_seen_from(folder, file)) for file in files)
    return replace(source, content=source.content + places)


def _make_plan(job: PrepareJob, checkpoint: list[Path], modules: list[Module], draft: Path) -> Plan:
    folder = _folder(job)
    graph = build(folder, checkpoint, modules)
    weights_folder = graph.write(draft)
    if job.precision == "int8" and _convert(draft, weights_folder, graph):
        weights_folder = None
    session = _open(draft, weights_folder)
    packed = _pack(draft, weights_folder)
    return Plan(
        format="safetensors",
        graph=GRAPH_FILE,
        weights_folder=None if weights_folder is None else _seen_from(folder, weights_folder),
        prepared=True,
        signature=_labelled(graph.signature, Config.read(folder / CONFIG_FILE)),
        batching="merge",
        row_s=_row_s(session, graph),
        weights_bytes=graph.weights_bytes,
        packed_graph=PACKED_GRAPH_FILE if packed.are_useful else None,
        packing_bytes=packed.packing_bytes,
    )


def _convert(draft: Path, weights_folder: Path | None, graph: Graph) -> bool:
    """Put a plan's integer version in its place, if there is one."""
    usual = Signature(graph.usual_inputs, graph.signature.outputs)
    converted = convert(draft / GRAPH_FILE, weights_folder or draft, usual, draft / "int8")
    if converted is None:
        return False
    for file in converted.parent.iterdir():  # small weights are all in the graph
        file.replace(draft / file.name)
    converted.parent.rmdir()
    return True


def _pack(draft: Path, weights_folder: Path | None) -> PackedWeights:
    """Write the plan a second time with packed weights, unless there is nothing to gain."""
    try:
        write_packed(draft, weights_folder)
    except Exception as error:  # the engine's errors share no base class
        what = "packed weights cannot be written to the cache directory"
        raise failure(error, what, draft) from error
    packed = packed_weights(draft / PACKED_GRAPH_FILE)
    if not packed.are_useful:
        for name in (PACKED_GRAPH_FILE, PACKED_WEIGHTS_FILE):
            (draft / name).unlink(missing_ok=True)
    return packed


def build(folder: Path, checkpoint: list[Path], modules: list[Module]) -> Graph:
    """The graph of a checkpoint, not yet written."""
    config = Config.read(folder / CONFIG_FILE)
    family, add_architecture = find(config)
    config = config.renamed(family.names)
    graph = Graph(read_checkpoint(checkpoint) | module_tensors(modules))
    if modules and family.encode is not None:
        encoded = family.encode(graph, config)
        states(graph, config, encoded)
        add_embedding(graph, modules, encoded, config.size("hidden_size"))
    else:
        add_architecture(graph, config)
    return graph


def _labelled(signature: Signature, config: Config) -> Signature:
    """With the names of classes, where there is an output of so many of them per row."""
    labels = config.numbered(_LABELS)
    has_classes = any(spec.shape[1:] == (len(labels),) for spec in signature.outputs)
    return msgspec.structs.replace(signature, labels=labels) if has_classes else signature


def _open(draft: Path, weights_folder: Path | None) -> Session:
    try:
        return open_plan(draft, weights_folder)
    except Exception as error:  # the engine's errors share no base class
        raise failure(error, _DO_NOT_FIT) from error


def _row_s(session: Session, graph: Graph) -> float | None:
    """How long a row takes.

    Raises:
        ModelFailed: the graph does not run.
    """
    signature = Signature(graph.usual_inputs, graph.signature.outputs)
    try:
        session.run(None, {spec.name: _made_up(spec) for spec in signature.inputs})
    except Exception as error:  # the engine's errors share no base class
        raise failure(error, _DO_NOT_FIT) from error
    with trials_of(session, signature) as trials:
        return trials.row_s(session)


def _made_up(spec: TensorSpec) -> Array:
    """One row that any model accepts."""
    length = min(_TRIAL_LENGTH, spec.max_length or _TRIAL_LENGTH)
    shape = [dim if isinstance(dim, int) else length for dim in spec.shape]
    if spec.batch_axis is not None:
        shape[spec.batch_axis] = 1
    value = 1 if spec.default == "ones" else 0
    return np.full(shape, value, DTYPES[spec.datatype])
