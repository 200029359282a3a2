"""What requests to encoders and two-tower models may leave out, and how long they may be."""

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.tensors import Inference

IDS = TensorSpec(
    "input_ids", "INT64", ("batch", "n"), 0, ragged_axis=1, max_length=8, bounds=(0, 100)
)
MASK = TensorSpec("attention_mask", "INT64", ("batch", "n"), 0, ragged_axis=1, default="ones")
TYPES = TensorSpec("token_type_ids", "INT32", ("batch", "n"), 0, ragged_axis=1, default="zeros")
ENCODER = Signature((IDS, MASK, TYPES), (TensorSpec("state", "FP32", ("batch", "n", 4), 0),))


def towers(*outputs: str | None) -> Signature:
    """A text and an image tower with an output of each given group."""
    texts = {"shape": ("batch", "n"), "datatype": "INT64", "batch_axis": 0, "group": "text"}
    inputs = (
        TensorSpec("input_ids", **texts),  # type: ignore[arg-type]  # one dict for all arguments
        TensorSpec("attention_mask", default="ones", **texts),  # type: ignore[arg-type]  # likewise
        TensorSpec("pixel_values", "FP32", ("batch", 3), 0, group="image"),
    )
    named = (TensorSpec(str(g), "FP32", ("batch", 4), 0, group=g) for g in outputs)
    return Signature(inputs, tuple(named))


TOWERS = towers("text", "image", None)


def decode(signature: Signature, outputs: list[str] | None = None, **inputs: Any) -> Inference:
    arrays = {name: np.asarray(values) for name, values in inputs.items()}
    tensors = [
        {"name": name, "shape": list(array.shape), "data": array.ravel().tolist()}
        for name, array in arrays.items()
    ]
    body = {"inputs": tensors, "outputs": outputs}
    return JsonV1("model", signature).decode(json.dumps(body).encode())


def refused(signature: Signature, outputs: list[str] | None = None, **inputs: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        decode(signature, outputs, **inputs)
    assert isinstance(caught.value, ShapeMismatch) == ("shape mismatch" in caught.value.message)
    return caught.value.message


@pytest.mark.parametrize("ids", [[[1, 2, 3, 4]], [[1.0, 2.0, 3.0, 4.0]]])
def test_ids_alone_are_enough(ids: Any) -> None:
    inputs = decode(ENCODER, input_ids=ids).inputs
    np.testing.assert_array_equal(inputs["input_ids"], np.array([[1, 2, 3, 4]]), strict=True)
    np.testing.assert_array_equal(inputs["attention_mask"], np.ones((1, 4), np.int64), strict=True)
    np.testing.assert_array_equal(inputs["token_type_ids"], np.zeros((1, 4), np.int32), strict=True)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_defaults_have_the_shape_of_what_is_given_even_if_that_is_empty(
    shape: tuple[int, int],
) -> None:
    inputs = decode(ENCODER, input_ids=np.zeros(shape)).inputs
    assert {array.shape for array in inputs.values()} == {shape}


def test_what_is_given_is_no_default() -> None:
    inputs = decode(ENCODER, attention_mask=[[1, 0]], input_ids=[[5, 6]]).inputs
    assert inputs["attention_mask"].tolist() == [[1, 0]]
    assert inputs["token_type_ids"].tolist() == [[0, 0]]


def test_a_default_does_not_replace_what_it_is_shaped_like() -> None:
    assert refused(ENCODER, attention_mask=[[1]]) == "missing in inputs: 'input_ids'"
    assert refused(ENCODER) == "missing in inputs: 'input_ids'"


def test_a_mask_has_the_shape_of_the_ids() -> None:
    message = refused(ENCODER, input_ids=[[1, 2]], attention_mask=[[1, 1, 1]])
    assert "dimension 'n'" in message
    message = refused(ENCODER, input_ids=[[1, 2]], attention_mask=[[1, 1], [1, 1]])
    assert "the number of rows must be the same" in message


def test_an_input_that_is_too_long_is_told_the_limit() -> None:
    decode(ENCODER, input_ids=np.ones((3, 8)))
    message = refused(ENCODER, input_ids=np.ones((3, 9)))
    assert message == "shape mismatch: input 'input_ids' may be 8 long on axis 1, got 9"


def test_an_input_that_is_too_short_is_told_the_limit_unless_there_are_no_rows() -> None:
    encoder = Signature((replace(IDS, min_length=1), MASK), ENCODER.outputs)
    decode(encoder, input_ids=np.zeros((0, 0)))
    decode(encoder, input_ids=np.zeros((2, 1)))
    message = refused(encoder, input_ids=np.zeros((2, 0)))
    assert message == "shape mismatch: input 'input_ids' must be 1 long or more on axis 1, got 0"


@pytest.mark.parametrize("outside", [-1, 100, 2**62])
@pytest.mark.parametrize("length", [2, 400])  # short data is read by another parser
def test_an_id_outside_the_vocabulary_is_told_the_range(outside: int, length: int) -> None:
    ids = np.full((length, 1), 99)
    decode(ENCODER, input_ids=ids)
    ids[1] = outside
    message = refused(ENCODER, input_ids=ids)
    assert message == f"input 'input_ids' takes values from 0 to 99, got {outside}"


def test_one_tower_is_enough_and_answers_for_itself() -> None:
    texts = decode(TOWERS, input_ids=[[1, 2]])
    assert texts.inputs.keys() == {"input_ids", "attention_mask"}
    assert texts.outputs == ("text",)
    images = decode(TOWERS, pixel_values=[[1, 2, 3]])
    assert images.inputs.keys() == {"pixel_values"}
    assert images.outputs == ("image",)


def test_both_towers_may_have_rows_of_their_own() -> None:
    both = decode(TOWERS, input_ids=[[1, 2]], pixel_values=np.ones((5, 3)))
    assert both.outputs == ("text", "image", "None")
    assert both.inputs["attention_mask"].shape == (1, 2)
    named = decode(TOWERS, ["image"], input_ids=[[1, 2]], pixel_values=np.ones((5, 3)))
    assert named.outputs == ("image",)


@pytest.mark.parametrize("output", ["image", "None"])
def test_an_output_of_a_tower_that_is_left_out_is_told_what_it_needs(output: str) -> None:
    message = refused(TOWERS, ["text", output], input_ids=[[1, 2]])
    assert message == f"output {output!r} needs 'pixel_values' in inputs"


def test_half_a_tower_or_none_is_not_enough() -> None:
    message = refused(TOWERS, attention_mask=[[1]], pixel_values=[[1, 2, 3]])
    assert message == "missing in inputs: 'input_ids'"
    assert refused(TOWERS) == "missing in inputs: 'input_ids' or 'pixel_values'"


def test_names_without_number_are_refused_quickly() -> None:
    body = {"inputs": [{"name": f"x{n}", "shape": [], "data": 1} for n in range(50_000)]}
    with pytest.raises(InvalidInput, match="unknown input 'x0'"):
        JsonV1("model", ENCODER).decode(json.dumps(body).encode())
