"""Turning an XGBoost or LightGBM model into a plan."""

import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from onnx import ModelProto

from snoozeml.core.plan import Format, Plan, PrepareJob, PrepareOutcome
from snoozeml.core.tensors import Signature
from snoozeml.errors import ModelFailed
from snoozeml.prepare.making import cannot_use, find_or_make
from snoozeml.prepare.session import GRAPH_FILE, Session, failure, open_plan
from snoozeml.prepare.signature import read_signature
from snoozeml.prepare.source import Source
from snoozeml.prepare.trees.forest import Forest, Malformed
from snoozeml.prepare.trees.graph import tree_graph
from snoozeml.prepare.trees.lightgbm_file import read_lightgbm
from snoozeml.prepare.trees.links import Link
from snoozeml.prepare.trees.xgboost_file import read_xgboost
from snoozeml.prepare.trials import trials_of

_READERS: Final[dict[Format, Callable[[bytes], tuple[Forest, Link]]]] = {
    "xgboost": read_xgboost,
    "lightgbm": read_lightgbm,
}

_LARGEST_GRAPH_BYTES: Final = 2**31 - 1  # protobuf's own limit


def prepare(job: PrepareJob) -> PrepareOutcome:
    """Find or make the plan of a tree ensemble.

    Raises:
        ModelFailed: the file is missing, damaged, or not supported; the message says what is wrong.
        OutOfMemory: there was not enough memory to try it.
    """
    path = Path(job.model_path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelFailed(f"{path.name} is not a regular file")
        return find_or_make(job, Source.of(path, [path]), partial(_make_plan, job))
    except OSError as error:
        raise cannot_use(error, job) from error
    except Malformed as error:
        raise ModelFailed(f"{path.name} cannot be served: {error}") from None


def _make_plan(job: PrepareJob, draft: Path) -> Plan:
    forest, link = _READERS[job.format](Path(job.model_path).read_bytes())
    forest.check()
    graph = draft / GRAPH_FILE
    graph.write_bytes(_serialized(tree_graph(forest, link)))
    session = _open(draft)
    signature = _by_rows(read_signature(session))
    with trials_of(session, signature) as trials:
        row_s = trials.row_s(session)
    return Plan(
        format=job.format,
        graph=GRAPH_FILE,
        prepared=True,
        signature=signature,
        batching="merge",
        row_s=row_s,
        weights_bytes=graph.stat().st_size,
        one_thread=forest.rounds_sums,
    )


def _open(draft: Path) -> Session:
    try:
        return open_plan(draft)
    except Exception as error:  # the engine's errors share no base class
        raise failure(error, "the engine cannot load these trees", draft) from error


def _serialized(graph: ModelProto) -> bytes:
    if graph.ByteSize() > _LARGEST_GRAPH_BYTES:
        raise Malformed("its trees take more than 2 GiB, which no ONNX graph can hold")
    content: bytes = graph.SerializeToString()
    return content


def _by_rows(signature: Signature) -> Signature:
    """Rows are independent of each other, so there is no need for a trial; and features are what
    there is to be given, whatever a client calls them."""
    return Signature(
        tuple(replace(spec, batch_axis=0, any_name=True) for spec in signature.inputs),
        tuple(replace(spec, batch_axis=0) for spec in signature.outputs),
    )
