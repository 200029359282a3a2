"""Whole requests and answers in the JSON dialect."""

import json
from typing import Any

import numpy as np
import pytest

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.json_v1 import JsonV1
from snoozeml.wire.tensors import Inference

IRIS = Signature(
    inputs=(TensorSpec("X", "FP32", (None, 4), 0),),
    outputs=(TensorSpec("label", "INT64", (None,), 0), TensorSpec("scores", "FP32", (None, 3), 0)),
)
ENCODER = Signature(
    inputs=(
        TensorSpec("ids", "INT64", ("batch", "sequence"), 0),
        TensorSpec("mask", "INT64", ("batch", "sequence"), 0),
    ),
    outputs=(TensorSpec("state", "FP32", ("batch", "sequence", 8), 0),),
)
ROW = [5.1, 3.5, 1.4, 0.2]


def tensor(name: str, shape: Any, data: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "data": data, **more}


def decode(body: dict[str, Any] | bytes, signature: Signature = IRIS) -> Inference:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return JsonV1("iris", signature).decode(raw)


def refused(body: dict[str, Any] | bytes, signature: Signature = IRIS) -> str:
    with pytest.raises(InvalidInput) as caught:
        decode(body, signature)
    assert caught.value.code == "invalid_input"
    return caught.value.message


def test_a_request_becomes_arrays_of_the_models_datatypes() -> None:
    inference = decode({"inputs": [tensor("X", [2, 4], [ROW, [1, 2, 3, 4]])]})
    assert inference.outputs == ("label", "scores")
    assert inference.inputs.keys() == {"X"}
    wanted = np.array([ROW, [1, 2, 3, 4]], np.float32)
    np.testing.assert_array_equal(inference.inputs["X"], wanted, strict=True)


def test_members_that_are_not_ours_and_optional_ones_may_be_there() -> None:
    inference = decode(
        {
            "id": "7",
            "inputs": [tensor("X", [1, 4], ROW, datatype="FP64", parameters={"a": 1})],
            "outputs": ["scores"],
            "parameters": {"temperature": 0.5, "nested": [1]},
            "timeout_ms": 100,
        }
    )
    assert inference.outputs == ("scores",)


@pytest.mark.parametrize(
    "datatype", [None, "FP32", "FP64", "INT64", "UINT8", "INT8", "BF16", "FP16"]
)
def test_a_stated_datatype_may_be_another_than_the_models(datatype: str | None) -> None:
    inputs = [tensor("X", [1, 4], [1, 2.0, 3, 4], datatype=datatype)]
    found = decode({"inputs": inputs}).inputs["X"]
    np.testing.assert_array_equal(found, np.array([[1, 2, 3, 4]], np.float32), strict=True)


@pytest.mark.parametrize(
    ("datatype", "value", "why"),
    [
        ("INT64", 1.5, "not whole"),
        ("INT64", None, "whole number"),
        ("BOOL", 3, "true, false, 1 or 0"),
        ("UINT8", 256, "0 to 255"),
        ("FP16", 1e5, "too large"),
        ("FP64", 2**53 + 1, "no exact equal"),
        ("INT64", 2**24 + 1, "FP32"),
    ],
)
def test_data_that_are_not_of_their_stated_datatype_are_refused(
    datatype: str, value: object, why: str
) -> None:
    message = refused({"inputs": [tensor("X", [1, 4], [0, value, 1, 0], datatype=datatype)]})
    assert "'X'" in message
    assert datatype in message
    assert why in message


def test_bounds_hold_for_other_datatypes_too() -> None:
    signature = Signature((TensorSpec("ids", "INT64", (None,), 0, bounds=(0, 10)),), IRIS.outputs)
    assert "0 to 9" in refused({"inputs": [tensor("ids", [1], [10], datatype="FP32")]}, signature)


def test_outputs_are_answered_in_the_order_asked_for() -> None:
    body = {"inputs": [tensor("X", [1, 4], ROW)], "outputs": ["scores", "label"]}
    assert decode(body).outputs == ("scores", "label")


def test_literals_that_json_lacks_are_read() -> None:
    body = b'{"inputs":[{"name":"X","shape":[1,4],"data":[NaN,null,-Infinity,1]}],"outputs":null}'
    np.testing.assert_array_equal(decode(body).inputs["X"], [[np.nan, np.nan, -np.inf, 1]])


@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_an_empty_body_is_called_so(body: bytes) -> None:
    assert refused(body).startswith("the body is empty; a request is a JSON object {")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{'inputs': []}",
        b'{"inputs":[]}{}',
        b'{"inputs":[{"name":"\xff"}]}',
        b'{"inputs":[{"name":"X","shape":[1,4],"data":["\xff"]}]}',
        b'{"inputs":[{"name":"\\ud800"}]}',
        b'{"inputs":[{"name":"\x01"}]}',
        b'{"inputs":[NaN',
        '{"inputs":[]}'.encode("utf-16"),
    ],
)
def test_what_is_not_json_is_called_so(body: bytes) -> None:
    assert "JSON" in refused(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[{"name":"X","shape":[1,4],"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        b'{"inputs":[],"parameters":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"inputs":[{"name":"X","shape":[1,4],"data":NaN' + b"[" * 100_000,
    ],
)
def test_deep_nesting_is_an_error_like_any_other(body: bytes) -> None:
    refused(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["inputs"]),
        ({"inputs": None}, ["inputs"]),
        ({"inputs": [1]}, ["object", "inputs[0]"]),
        ({"inputs": [{}]}, ["name"]),
        ({"inputs": [tensor("X", [1.5, 4], ROW)]}, ["shape"]),
        ({"inputs": [tensor("X", [-1, 4], ROW)]}, ["shape"]),
        ({"inputs": [tensor("X", [2**64, 4], ROW)]}, ["shape"]),
        ({"inputs": []}, ["'X'"]),
        ({"inputs": [tensor("Z", [1, 4], ROW)]}, ["'Z'", "'X'"]),
        ({"inputs": [tensor("X", [1, 4], ROW)] * 2}, ["'X'", "more than once"]),
        ({"inputs": [tensor("X", [1, 4], ROW, datatype=1)]}, ["datatype"]),
        ({"inputs": [tensor("X", [1, 4], ROW, datatype="BYTES")]}, ["'X'", "FP32", "BYTES"]),
        ({"inputs": [tensor("X", [1, 4], ROW)], "outputs": []}, ["'label'", "'scores'"]),
        ({"inputs": [tensor("X", [1, 4], ROW)], "outputs": ["q"]}, ["'q'", "'label'", "'scores'"]),
        ({"inputs": [tensor("X", [1, 4], ROW)], "outputs": ["label"] * 2}, ["'label'", "once"]),
        ({"inputs": [tensor("X", [1, 4], ROW)], "parameters": []}, ["parameters"]),
        *(
            ({"inputs": [tensor("X", [1, 4], ROW)], "timeout_ms": value}, ["timeout_ms"])
            for value in (0, -5, 1.5, "1s", 2**70)
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(
    body: dict[str, Any], words: list[str]
) -> None:
    message = refused(body)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("shape", [[4], [1, 1, 4], [1, 5], [1] * 40])
def test_a_shape_that_does_not_fit_is_shown_with_the_one_wanted(shape: list[int]) -> None:
    with pytest.raises(ShapeMismatch) as caught:
        decode({"inputs": [tensor("X", shape, ROW)]})
    assert f"input 'X' wants [-1, 4], got {shape}" in caught.value.message


@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": [tensor("Z" * 10**6, [1, 4], ROW)]},
        {"inputs": [tensor("X", [1] * 10**6, ROW)]},
        {"inputs": [tensor("X", [1, 4], ["Z" * 10**6])]},
        {"inputs": [tensor("X", [1, 4], ROW, datatype="Z" * 10**6)]},
        {"inputs": [tensor("X", [1, 4], ROW)], "outputs": ["Z" * 10**6]},
    ],
)
def test_a_message_does_not_grow_with_what_is_wrong(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode(changed)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("ids", "mask", "words"),
    [
        ([2, 3], [3, 3], ["number of rows", "'ids'", "'mask'", "2", "3"]),
        ([2, 3], [2, 4], ["'sequence'", "'ids'", "'mask'", "3", "4"]),
    ],
)
def test_inputs_must_agree_about_the_dimensions_they_share(
    ids: list[int], mask: list[int], words: list[str]
) -> None:
    tensors = [tensor(n, s, [0] * s[0] * s[1]) for n, s in (("ids", ids), ("mask", mask))]
    with pytest.raises(ShapeMismatch) as caught:
        decode({"inputs": tensors}, ENCODER)
    assert [word for word in words if word not in caught.value.message] == []


def test_rows_must_agree_even_where_the_batch_axes_have_no_name() -> None:
    signature = Signature(
        inputs=(TensorSpec("x", "FP32", (None, 2), 0), TensorSpec("s", "FP32", (1, None, 2), 1)),
        outputs=(),
    )
    with pytest.raises(ShapeMismatch, match="number of rows"):
        decode(
            {"inputs": [tensor("x", [1, 2], [0, 0]), tensor("s", [1, 2, 2], [0] * 4)]}, signature
        )


def test_a_batch_axis_fixed_at_one_takes_any_number_of_rows() -> None:
    signature = Signature(inputs=(TensorSpec("x", "FP32", (1, 2), 0),), outputs=())
    assert decode({"inputs": [tensor("x", [3, 2], [0] * 6)]}, signature).inputs["x"].shape == (3, 2)


def encoded(signature: Signature, **outputs: Any) -> dict[str, Any]:
    codec = JsonV1("größe", signature)
    body = codec.encode(list(outputs), [np.array(o) for o in outputs.values()], None, 0.0125)
    answer: dict[str, Any] = json.loads(body)
    return answer


def test_an_answer_has_the_members_of_the_contract() -> None:
    scores = np.array([[0.1, 0.7, np.nan], [np.inf, -np.inf, 1]], np.float32)
    assert encoded(IRIS, scores=scores, label=np.array([1, 2])) == {
        "model_id": "größe",
        "outputs": [
            {
                "name": "scores",
                "shape": [2, 3],
                "datatype": "FP32",
                "data": [0.1, 0.7, None, None, None, 1],
            },
            {"name": "label", "shape": [2], "datatype": "INT64", "data": [1, 2]},
        ],
        "duration_ms": 12.5,
    }


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3), np.float32),
        np.float32(3),
        np.arange(12, dtype=np.float32).reshape(4, 3)[:, 1:],
        np.arange(12, dtype=np.float32).reshape(4, 3).T,
    ],
    ids=["empty", "scalar", "columns", "transposed"],
)
def test_arrays_of_any_layout_are_written_row_by_row(array: Any) -> None:
    output = encoded(IRIS, scores=array)["outputs"][0]
    assert output["shape"] == list(array.shape)
    assert output["data"] == array.ravel().tolist()


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT8", "UINT64", "FP16", "FP64"])
def test_every_datatype_is_written(datatype: Any) -> None:
    from snoozeml.wire.tensors import DTYPES

    signature = Signature((), (TensorSpec("y", datatype, (None,), 0),))
    output = encoded(signature, y=np.array([0, 1], DTYPES[datatype]))["outputs"][0]
    assert output == {"name": "y", "shape": [2], "datatype": datatype, "data": [0, 1]}


TEXT = Signature((), (TensorSpec("t", "BYTES", (None,), 0),))


def test_text_is_written_as_text() -> None:
    output = encoded(TEXT, t=np.array(["grüß", b"\xe5\x97\xa8"], object))["outputs"][0]
    assert output == {"name": "t", "shape": [2], "datatype": "BYTES", "data": ["grüß", "嗨"]}


def test_bytes_that_are_not_text_are_written_in_base64_and_say_so() -> None:
    output = encoded(TEXT, t=np.array(["a", b"\xff"], object))["outputs"][0]
    assert output["data"] == ["YQ==", "/w=="]
    assert output["parameters"] == {"content_type": "base64"}


FEATURES = Signature((TensorSpec("features", "FP32", ("rows", 2), 0, any_name=True),), ())


@pytest.mark.parametrize("name", ["features", "X", "", "☃"])
def test_an_only_input_may_go_by_any_name(name: str) -> None:
    request = decode({"inputs": [tensor(name, [1, 2], [1, None])]}, FEATURES)
    np.testing.assert_array_equal(request.inputs["features"], [[1, np.nan]])


def test_an_input_of_any_name_is_still_one_input() -> None:
    both = [tensor("a", [1, 2], [1, 2]), tensor("b", [1, 2], [1, 2])]
    assert "'features' is there more than once" in refused({"inputs": both}, FEATURES)
    assert "missing in inputs: 'features'" in refused({"inputs": []}, FEATURES)
