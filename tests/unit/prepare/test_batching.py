"""The search for the batch axis, with trials that are looked up instead of run."""

from collections.abc import Sequence

import pytest

from snoozeml.core.tensors import Dim, Signature, TensorSpec
from snoozeml.prepare.batching import Axes, OutputRows, Trial, find_batching

Shapes = Sequence[tuple[Dim, ...]]


def signature(inputs: Shapes, outputs: Shapes) -> Signature:
    return Signature(
        tuple(TensorSpec(f"in{i}", "FP32", shape) for i, shape in enumerate(inputs)),
        tuple(TensorSpec(f"out{i}", "FP32", shape) for i, shape in enumerate(outputs)),
    )


def trial(results: dict[Axes, Axes]) -> Trial:
    """A model that, with rows along the key, gives outputs with rows along the value.

    Along any other axes its rows depend on each other.
    """

    def run(axes: Axes) -> list[OutputRows]:
        outputs = results.get(axes, (None,) * len(next(iter(results.values()), (None,))))
        return [OutputRows(axis, rank=3) for axis in outputs]

    return run


def refuses(axes: Axes) -> None:
    """A model that does not run on made-up data."""


def axes_of(found: Signature) -> tuple[Axes, Axes]:
    return (
        tuple(spec.batch_axis for spec in found.inputs),
        tuple(spec.batch_axis for spec in found.outputs),
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "axes"),
    [
        pytest.param([(None, 4)], [(None,), (None, 3)], ((0,), (0, 0)), id="unnamed"),
        pytest.param([("N", 3, "H", "W")], [("N", 9)], ((0,), (0,)), id="image"),
        pytest.param(
            [("batch_size", "sequence")] * 3,
            [("batch_size", "sequence", 384)],
            ((0, 0, 0), (0,)),
            id="encoder",
        ),
        pytest.param(
            [("time", "batch", 8), (1, "batch", 8)],
            [("time", "batch", 8), (1, "batch", 8)],
            ((1, 1), (1, 1)),
            id="time first",
        ),
        pytest.param(
            [("batch", "sequence"), (2, "batch", 128), ()],
            [("batch", 1), ("AddstateN_dim_0", "batch", "AddstateN_dim_2")],
            ((0, 1, None), (0, 1)),
            id="state on axis 1",
        ),
        pytest.param(
            [(None, None), (2, None, 128), ()],
            [(None, 1), (None, None, None)],
            ((0, 1, None), (0, 1)),
            id="unnamed state on axis 1",
        ),
        pytest.param([("a", 4), ("b", 4)], [("c", 4)], ((0, 0), (0,)), id="a name per tensor"),
        pytest.param([("N", 4), ("M", 4)], [("N", "M")], ((0, None), (0,)), id="shared input"),
    ],
)
def test_the_trial_decides_among_the_axes_that_shapes_suggest(
    inputs: Shapes, outputs: Shapes, axes: tuple[Axes, Axes]
) -> None:
    given, expected = axes
    found, batching = find_batching(signature(inputs, outputs), trial({given: expected}))
    assert batching == "merge"
    assert axes_of(found) == axes


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        pytest.param([("batch", 4)], [("batch", 4)], id="clear names"),
        pytest.param([("sequence",)], [("sequence", 384)], id="one text without a batch"),
        pytest.param([(None, 4)], [(None, 3)], id="unnamed"),
    ],
)
def test_rows_that_depend_on_each_other_are_never_merged(inputs: Shapes, outputs: Shapes) -> None:
    asked = signature(inputs, outputs)
    assert find_batching(asked, trial({})) == (asked, "alone")


def test_an_output_without_rows_rules_merging_out() -> None:
    asked = signature([("batch", 4)], [("batch", 4), ()])
    assert find_batching(asked, trial({(0,): (0, None)})) == (asked, "alone")


@pytest.mark.parametrize(
    ("inputs", "outputs", "axes"),
    [
        ([("batch_size", "sequence")], [("batch_size", "sequence", 8)], ((0,), (0,))),
        ([("batch", 3), (2, "batch", 8), ()], [("batch", 1)], ((0, 1, None), (0,))),
    ],
)
def test_without_a_trial_a_dimension_called_batch_is_believed(
    inputs: Shapes, outputs: Shapes, axes: tuple[Axes, Axes]
) -> None:
    found, batching = find_batching(signature(inputs, outputs), refuses)
    assert batching == "merge"
    assert axes_of(found) == axes


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        pytest.param([("N", 4)], [("N", 4)], id="a name that may mean anything"),
        pytest.param([(None, 4)], [(None, 4)], id="no name"),
        pytest.param([("batch", 4)], [("boxes", 4)], id="an output without it"),
        pytest.param([("batch", 4), (None, 4)], [("batch", 4)], id="an input that may have it"),
        pytest.param([("batch", "batch")], [("batch",)], id="an input that has it twice"),
    ],
)
def test_without_a_trial_nothing_else_is_believed(inputs: Shapes, outputs: Shapes) -> None:
    asked = signature(inputs, outputs)
    assert find_batching(asked, refuses) == (asked, "alone")


@pytest.mark.parametrize(
    ("inputs", "outputs", "input_axes"),
    [
        ([(1, 3, 224, 224)], [(1, 1000)], (0,)),
        ([(1, "sequence"), ()], [(1, "sequence", 8), (1, 8)], (0, None)),
    ],
)
def test_a_batch_dimension_fixed_at_one_means_a_run_per_row(
    inputs: Shapes, outputs: Shapes, input_axes: Axes
) -> None:
    found, batching = find_batching(signature(inputs, outputs), refuses)
    assert batching == "row_by_row"
    assert axes_of(found) == (input_axes, (0,) * len(outputs))


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        pytest.param([(8, 4)], [(8, 3)], id="a batch fixed at eight"),
        pytest.param([()], [()], id="scalars"),
        pytest.param([(1, 3, 640, 640)], [("boxes", 7)], id="one image, many boxes"),
        pytest.param([(1, 576), (2, 1, 128)], [(1, 1), (2, 1, 128)], id="a state for one row"),
        pytest.param([], [(1, 3)], id="no inputs"),
    ],
)
def test_requests_run_alone_where_no_axis_can_be_the_batch(inputs: Shapes, outputs: Shapes) -> None:
    asked = signature(inputs, outputs)
    assert find_batching(asked, trial({})) == (asked, "alone")


def test_the_rank_of_an_output_is_learned_from_the_trial() -> None:
    found, _ = find_batching(signature([("batch", 4)], [()]), trial({(0,): (1,)}))
    assert found.outputs[0] == TensorSpec("out0", "FP32", (None, None, None), batch_axis=1)
