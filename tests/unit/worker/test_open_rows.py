"""Batches of a model that does not say what it takes and gives."""

import numpy as np
import pytest

from snoozeml.core.tensors import Signature
from snoozeml.wire.tensors import Array, NamedArrays, Tensors, names_of
from snoozeml.worker.open_rows import OpenLayout, layout_of
from snoozeml.worker.rows import OutputWithoutRows, RowLayout

LAYOUT = OpenLayout(Signature((), (), open_inputs=True, open_outputs=True))


def zeros(*shape: int, dtype: type = np.float32) -> Array:
    return np.zeros(shape, dtype)


def test_only_open_models_get_this_layout() -> None:
    assert type(layout_of(Signature((), ()))) is RowLayout
    assert type(layout_of(Signature((), (), open_outputs=True))) is OpenLayout


@pytest.mark.parametrize(
    ("inputs", "rows"),
    [
        ({"x": zeros(3, 2)}, 3),
        ({"x": zeros(3, 2), "y": zeros(3)}, 3),
    ],
)
def test_rows_lie_along_the_first_axis(inputs: Tensors, rows: int) -> None:
    assert LAYOUT.count(inputs) == rows
    assert LAYOUT.batch_key(inputs, ()) is not None


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"x": zeros()},
        {"x": zeros(0, 2)},
        {"x": zeros(3), "y": zeros(2)},
        {"x": zeros(3), "scale": zeros()},
    ],
)
def test_a_request_without_common_rows_runs_alone(inputs: Tensors) -> None:
    assert LAYOUT.count(inputs) == 1
    assert LAYOUT.batch_key(inputs, ()) is None


@pytest.mark.parametrize(
    ("other", "outputs", "shares"),
    [
        ({"x": zeros(5, 2)}, (), True),
        ({"x": zeros(5, 3)}, (), False),
        ({"x": zeros(5, 2, dtype=np.int64)}, (), False),
        ({"y": zeros(5, 2)}, (), False),
        ({"x": zeros(5, 2), "y": zeros(5)}, (), False),
        ({"x": zeros(5, 2)}, ("y",), False),
    ],
)
def test_requests_share_runs_only_where_they_are_alike(
    other: Tensors, outputs: tuple[str, ...], shares: bool
) -> None:
    key = LAYOUT.batch_key({"x": zeros(1, 2)}, ())
    assert (LAYOUT.batch_key(other, outputs) == key) is shares


def test_the_order_of_inputs_does_not_matter() -> None:
    a, b = zeros(1), zeros(1, 2)
    one, other = {"a": a, "b": b}, {"b": b, "a": a}
    assert LAYOUT.batch_key(one, ()) == LAYOUT.batch_key(other, ())
    assert LAYOUT.merge([one, other])["b"].shape == (2, 2)


def test_what_was_merged_is_split_under_its_names() -> None:
    outputs = NamedArrays(["y", "z"], [np.arange(5), np.arange(10).reshape(5, 2)])
    first, second = LAYOUT.split((), outputs, [{"x": zeros(2)}, {"x": zeros(3)}])
    assert names_of(first, ()) == names_of(second, ()) == ("y", "z")
    assert first[0].tolist() == [0, 1]
    assert second[1].tolist() == [[4, 5], [6, 7], [8, 9]]
    joined = LAYOUT.join((), [first, second], [2, 3])
    assert names_of(joined, ()) == ("y", "z")
    np.testing.assert_array_equal(joined[1], outputs[1])


@pytest.mark.parametrize("output", [np.arange(4), np.float32(1), np.ones((1, 5))])
def test_nobodys_row_is_guessed(output: Array) -> None:
    with pytest.raises(OutputWithoutRows, match=r"'y' has the shape .* for 5 rows"):
        LAYOUT.split(
            (), NamedArrays(["y"], [np.asarray(output)]), [{"x": zeros(2)}, {"x": zeros(3)}]
        )


def test_pieces_with_different_outputs_cannot_be_joined() -> None:
    pieces = [NamedArrays(["y"], [np.ones(1)]), NamedArrays(["z"], [np.ones(1)])]
    with pytest.raises(OutputWithoutRows, match="differ from run to run"):
        LAYOUT.join((), pieces, [1, 1])
