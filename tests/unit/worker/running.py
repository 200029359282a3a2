"""A runner on the fake engine, and requests for it."""

from collections.abc import Sequence

import msgspec
import numpy as np

from component.fake_engine import SIGNATURE, FakeEngine
from snoozeml.core.plan import Plan, WorkerFailure, WorkerSpec
from snoozeml.core.tensors import Batching, Signature
from snoozeml.wire.tensors import Array, Inference, Tensors
from snoozeml.worker.answers import Answer
from snoozeml.worker.batcher import Pending
from snoozeml.worker.rows import RowLayout
from snoozeml.worker.runner import Runner

MAX_ROWS = 8
MAX_TOKENS = 64
LAYOUT = RowLayout(SIGNATURE)
ALL = ("y", "next_state", "label")


def runner(
    engine: FakeEngine,
    batching: Batching = "merge",
    signature: Signature = SIGNATURE,
    notices: list[WorkerFailure] | None = None,
    max_rows: int = MAX_ROWS,
) -> Runner:
    plan = Plan(
        format="onnx",
        graph="",
        prepared=True,
        signature=signature,
        batching=batching,
        weights_bytes=0,
    )
    spec = WorkerSpec(
        model_id="fake",
        plan=plan,
        device="cpu",
        max_batch_size=max_rows,
        max_batch_tokens=MAX_TOKENS,
        max_batch_delay_s=0,
        batching="adaptive",
        threads=1,
    )
    return Runner(spec, engine, RowLayout(signature), [] if notices is None else notices)


def request(
    rows: int, columns: int = 3, *, seed: int = 0, scale: float = 2, outputs: Sequence[str] = ALL
) -> Pending:
    """A request with values of its own; `x` is not negative."""
    rng = np.random.default_rng(seed)
    inputs = {
        "x": rng.random((rows, columns), np.float32),
        "state": rng.random((2, rows), np.float32),
        "scale": np.array(scale, np.float32),
    }
    return pending(inputs, tuple(outputs))


def pending(inputs: Tensors, outputs: tuple[str, ...] = ALL) -> Pending:
    measures = LAYOUT.measure(inputs, outputs)
    return Pending(0, 1, 0.0, 0.0, Inference(inputs, outputs), *measures)


RAGGED = Signature(
    tuple(
        msgspec.structs.replace(s, ragged_axis=1 if s.name == "x" else None)
        for s in SIGNATURE.inputs
    ),
    tuple(
        msgspec.structs.replace(s, ragged_axis=1 if s.name == "y" else None)
        for s in SIGNATURE.outputs
    ),
)
"""The same model, whose `x` and `y` may have any number of columns."""


def ragged(rows: int, columns: int, seed: int = 0) -> Pending:
    """A request without `label`, which padding would change."""
    layout = RowLayout(RAGGED)
    inputs, outputs = request(rows, columns, seed=seed).inference.inputs, ("y", "next_state")
    return Pending(0, 1, 0.0, 0.0, Inference(inputs, outputs), *layout.measure(inputs, outputs))


def results(answer: Answer) -> Sequence[Array]:
    assert not isinstance(answer.result, WorkerFailure), answer.result.message
    rows = answer.rows
    return answer.result if rows is None else [array[rows] for array in answer.result]


def failure(answer: Answer) -> WorkerFailure:
    assert isinstance(answer.result, WorkerFailure)
    return answer.result


def assert_equal(answer: Answer, alone: Sequence[Array]) -> None:
    for got, wanted in zip(results(answer), alone, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, strict=True)
