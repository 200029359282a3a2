"""Turning an ONNX model into a plan."""

import shutil
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from snoozeml.core.plan import Plan, Precision, PrepareJob, PrepareOutcome
from snoozeml.core.tensors import Batching, Signature
from snoozeml.errors import SnoozeError
from snoozeml.prepare.batching import find_batching
from snoozeml.prepare.int8.conversion import convert
from snoozeml.prepare.making import find_or_make
from snoozeml.prepare.packing import packed_weights
from snoozeml.prepare.padding import find_padding
from snoozeml.prepare.session import (
    GRAPH_FILE,
    Session,
    open_plainly,
    open_plan,
    optimise,
    reason,
)
from snoozeml.prepare.signature import read_signature
from snoozeml.prepare.source import Source, read_source
from snoozeml.prepare.tables import with_bounds
from snoozeml.prepare.trials import trials_of


class PlanDiffers(Exception):
    """What was written does not declare, or does not answer, what the model does."""


def prepare(job: PrepareJob) -> PrepareOutcome:
    """Find or make the plan of an ONNX model.

    A model that cannot be optimised ahead of time, or whose plan cannot be written to the cache,
    gets an unprepared plan, which says why.

    Raises:
        ModelFailed: the model could not be served with any plan.
        OutOfMemory: there was not enough memory to load it.
    """
    source = read_source(Path(job.model_path))
    try:
        made = find_or_make(job, source, partial(_make_plan, source, job.precision))
    except SnoozeError:
        raise
    except Exception as error:  # a full disk, an optimiser that cannot cope: plain loading may do
        plan = _plain_plan(source, because=reason(error))
        return PrepareOutcome(plan=plan, stamps=source.stamps)
    # Models of the same content share a plan; each has a file of its own.
    assert made.plan is not None
    return replace(made, plan=replace(made.plan, source=str(source.path)))


def _make_plan(source: Source, precision: Precision, draft: Path) -> Plan:
    if precision == "int8":
        session, signature, batching = _optimise_in_integers(source, draft)
    else:
        session = optimise(source.path, draft, source.size_bytes)
        signature, batching = _describe(session, source)
    packed = packed_weights(draft / GRAPH_FILE)
    return Plan(
        format="onnx",
        graph=GRAPH_FILE,
        prepared=True,
        signature=signature,
        batching=batching,
        row_s=_check_plan(open_plan(draft), session, signature),
        weights_bytes=_size_bytes(draft) - packed.total_bytes,
        packed_graph=GRAPH_FILE if packed.are_useful else None,
        packing_bytes=packed.packing_bytes,
    )


def _optimise_in_integers(source: Source, draft: Path) -> tuple[Session, Signature, Batching]:
    """Like `optimise`, for the integer version; what it takes and gives is the model's own."""
    signature, batching = _describe(open_plainly(source.path), source)
    converted = convert(source.path, source.path.parent, signature, draft / "int8")
    if converted is None:
        return optimise(source.path, draft, source.size_bytes), signature, batching
    session = optimise(converted, draft, source.size_bytes)
    shutil.rmtree(converted.parent)
    return session, signature, batching


def _size_bytes(draft: Path) -> int:
    return sum(path.stat().st_size for path in draft.iterdir())


def _plain_plan(source: Source, because: str) -> Plan:
    signature, batching = _describe(open_plainly(source.path), source)
    return Plan(
        format="onnx",
        graph=str(source.path),
        prepared=False,
        unprepared_because=because,
        signature=signature,
        batching=batching,
        weights_bytes=source.size_bytes,
    )


def _describe(session: Session, source: Source) -> tuple[Signature, Batching]:
    signature = with_bounds(read_signature(session, source.unranked_inputs), source.table_sizes)
    with trials_of(session, signature) as trials:
        found, batching = find_batching(signature, trials.rows)
        if batching == "merge":
            found = find_padding(found, trials.padding)
        return found, batching


def _check_plan(plan: Session, session: Session, signature: Signature) -> float | None:
    """See whether a plan is as good as its model, and how long it takes for a row.

    Raises:
        PlanDiffers: it is not.
    """
    if read_signature(plan) != read_signature(session):
        raise PlanDiffers("the optimised graph has other inputs or outputs than the model")
    with trials_of(session, signature) as trials:
        if not trials.same_answers(plan):
            raise PlanDiffers("the optimised graph answers otherwise than the model")
        return trials.row_s(plan)
