"""Requests of different lengths, and of one tower or both, share batches without a trace."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.wire.tensors import Array, Tensors
from snoozeml.worker.rows import OutputWithoutRows, RowLayout

IDS = TensorSpec("ids", "INT64", ("batch", "n"), 0, ragged_axis=1, fill=9)
MASK = TensorSpec("mask", "INT64", ("batch", "n"), 0, ragged_axis=1, default="ones")
ENCODER = Signature(
    # `time` has its ragged axis before its batch axis.
    (IDS, MASK, TensorSpec("time", "FP32", ("n", "batch"), 1, ragged_axis=0)),
    (
        TensorSpec("tokens", "FP32", ("batch", 2, "n"), 0, ragged_axis=2),
        TensorSpec("turned", "FP32", ("n", "batch"), 1, ragged_axis=0),
        TensorSpec("sum", "FP32", ("batch",), 0),
    ),
)
OUTPUTS = ("tokens", "turned", "sum")
LAYOUT = RowLayout(ENCODER)

TOWERS = Signature(
    (
        TensorSpec("ids", "INT64", ("texts", "n"), 0, ragged_axis=1, group="text"),
        TensorSpec("pixels", "FP32", ("images", 3, "side"), 0, group="image"),
    ),
    (
        TensorSpec("text", "FP32", ("texts", 4), 0, group="text"),
        TensorSpec("image", "FP32", ("images", 4), 0, group="image"),
    ),
)


def run(inputs: Tensors) -> list[Array]:
    """A model that heeds its mask; padded ids and times would show."""
    kept = inputs["mask"] * (inputs["ids"] + inputs["time"].T)
    tokens = np.stack([kept, -kept], axis=1)
    return [array.astype(np.float32) for array in (tokens, kept.T + 1, kept.sum(axis=1))]


def request(rows: int, length: int, seed: int = 0) -> Tensors:
    rng = np.random.default_rng(seed)
    return {
        "ids": rng.integers(0, 9, (rows, length)),
        "mask": np.ones((rows, length), np.int64),
        "time": rng.random((length, rows), np.float32),
    }


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=8),
    data=st.data(),
)
def test_requests_of_any_lengths_are_answered_as_alone(
    sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    requests = [request(rows, length, seed) for seed, (rows, length) in enumerate(sizes)]
    for inputs in requests:  # holes anywhere, as long as every row keeps a token
        hole = data.draw(st.integers(0, inputs["mask"].shape[1]))
        inputs["mask"][:, :hole] = 0
        inputs["mask"][:, data.draw(st.integers(0, inputs["mask"].shape[1] - 1))] = 1
    assert len({LAYOUT.batch_key(inputs, OUTPUTS) for inputs in requests}) == 1
    answers = LAYOUT.split(OUTPUTS, run(LAYOUT.merge(requests)), requests)
    for inputs, answer in zip(requests, answers, strict=True):
        for got, wanted in zip(answer, run(inputs), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, strict=True)


def test_padding_is_what_the_signature_says() -> None:
    merged = LAYOUT.merge([request(1, 1), request(1, 3)])
    assert merged["ids"][0, 1:].tolist() == [9, 9]
    assert merged["mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert merged["time"].shape == (3, 2)
    assert {array.dtype for array in merged.values()} == {np.dtype(np.int64), np.dtype(np.float32)}


def test_length_is_the_longest_and_none_is_zero() -> None:
    assert LAYOUT.length(request(2, 5)) == 5
    dense = RowLayout(Signature((TensorSpec("x", "FP32", ("batch", 4), 0),), ()))
    assert dense.length({"x": np.zeros((2, 4))}) == 0


def test_other_dimensions_and_outputs_still_keep_requests_apart() -> None:
    images = Signature(
        (TensorSpec("x", "FP32", ("batch", "n", "side"), 0, ragged_axis=1),),
        (TensorSpec("y", "FP32", ("batch", "n"), 0, ragged_axis=1),),
    )
    layout = RowLayout(images)
    sides = [layout.batch_key({"x": np.zeros((1, 2, side))}, ["y"]) for side in (3, 4)]
    assert sides[0] != sides[1]
    assert LAYOUT.batch_key(request(1, 2), OUTPUTS) != LAYOUT.batch_key(request(1, 2), ["sum"])


def test_rows_without_a_token_that_counts_share_only_with_the_same_length() -> None:
    masked, longer = request(2, 3), request(2, 4)
    masked["mask"][1] = longer["mask"][0] = 0
    ordinary, empty = request(2, 3), request(1, 0)
    keys = [LAYOUT.batch_key(r, OUTPUTS) for r in (masked, longer, ordinary, empty)]
    assert None not in keys
    assert len(set(keys)) == 4
    assert LAYOUT.batch_key(request(1, 0), OUTPUTS) == keys[-1]
    twice = [masked, masked]
    for answer in LAYOUT.split(OUTPUTS, run(LAYOUT.merge(twice)), twice):
        np.testing.assert_array_equal(answer[2], run(masked)[2])


def test_an_output_of_another_length_is_nobodys() -> None:
    requests = [request(1, 2), request(1, 4)]
    outputs = run(LAYOUT.merge(requests))
    outputs[0] = np.concatenate([outputs[0], outputs[0][..., :1]], axis=2)
    with pytest.raises(OutputWithoutRows, match=r"'tokens' .*\[1, 2, 5\] .* padded to 4"):
        LAYOUT.split(OUTPUTS, outputs, requests)


def test_no_rows_have_the_length_of_the_request() -> None:
    shapes = [array.shape for array in LAYOUT.empty(request(0, 5), OUTPUTS)]
    assert shapes == [(0, 2, 5), (5, 0), (0,)]


def test_towers_that_are_left_out_get_no_rows() -> None:
    layout = RowLayout(TOWERS)
    texts: Tensors = {"ids": np.ones((3, 5), np.int64)}
    fed = layout.complete(texts)
    assert {name: array.shape for name, array in fed.items()} == {
        "ids": (3, 5),
        "pixels": (0, 3, 1),
    }
    assert fed["pixels"].dtype == np.float32
    assert (layout.count(texts), layout.length(texts)) == (3, 5)


def test_requests_share_a_batch_only_if_they_leave_out_the_same() -> None:
    layout = RowLayout(TOWERS)

    def key(outputs: Sequence[str], **rows: int) -> object:
        arrays = {
            "ids": np.ones((rows.get("texts", 0), 5)),
            "pixels": np.ones((rows.get("images", 0), 3, 8)),
        }
        names = {"texts": "ids", "images": "pixels"}
        return layout.batch_key({names[n]: arrays[names[n]] for n in rows}, outputs)

    both = ["text", "image"]
    assert key(["text"], texts=1) == key(["text"], texts=2)
    assert key(both, texts=2, images=2) == key(both, texts=3, images=3)
    different = {
        key(["text"], texts=1),
        key(["image"], images=1),
        key(["text"], texts=1, images=1),
        key(both, texts=1, images=1),
    }
    assert len(different) == 4
    assert key(both, texts=2, images=3) is None


def test_towers_that_are_left_out_take_no_part_in_merging_and_cutting() -> None:
    layout = RowLayout(TOWERS)
    requests: list[Tensors] = [{"ids": np.ones((rows, rows), np.int64)} for rows in (1, 2, 3)]
    merged = layout.merge(requests)
    assert {name: array.shape for name, array in merged.items()} == {"ids": (6, 3)}
    assert layout.cut(merged, 2, 4).keys() == {"ids"}
    answers = layout.split(["text"], [np.arange(24).reshape(6, 4)], requests)
    assert [answer[0].shape for answer in answers] == [(1, 4), (2, 4), (3, 4)]
    (empty,) = layout.empty({"ids": np.ones((0, 5), np.int64)}, ["text"])
    assert empty.shape == (0, 4)
