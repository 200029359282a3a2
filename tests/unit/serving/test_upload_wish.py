"""What may be asked for with an upload, and what the client is told otherwise."""

import pytest

from snoozeml.errors import InvalidInput
from snoozeml.serving.uploads.wish import read_wish


def test_everything_that_may_be_asked_for() -> None:
    fields = {
        "model_id": "bge",
        "description": "good embeddings",
        "pinned": "true",
        "overwrite": "true",
        "max_batch_size": "64",
        "max_batch_delay_ms": "2.5",
        "idle_timeout_secs": "60",
        "min_residency_secs": "5",
        "autoscale_queue_threshold": "8",
        "max_replicas": "2",
        "routing_strategy": "random",
        "device": "cpu",
    }
    wish = read_wish(fields, "x.zip")
    assert (wish.model_id, wish.overwrite, wish.suffix) == ("bge", True, ".zip")
    assert wish.settings == {
        "description": "good embeddings",
        "pinned": True,
        "max_batch_size": 64,
        "max_batch_delay_ms": 2.5,
        "idle_timeout_secs": 60.0,
        "min_residency_secs": 5.0,
        "autoscale_queue_threshold": 8,
        "max_replicas": 2,
        "routing_strategy": "random",
        "device": "cpu",
    }


def test_an_empty_field_is_not_given() -> None:
    fields = {"model_id": "", "device": "", "pinned": "", "overwrite": ""}
    assert read_wish(fields, "iris.onnx") == ("iris", False, ".onnx", {})


@pytest.mark.parametrize(
    ("file_name", "model_id", "suffix"),
    [
        ("iris.onnx", "iris", ".onnx"),
        ("Iris.V2.ONNX", "Iris.V2", ".onnx"),
        ("bge.zip", "bge", ".zip"),
        ("a.xgb.json", "a", ".xgb.json"),
        ("a.lgb.txt", "a", ".lgb.txt"),
        ("a.ubj", "a", ".ubj"),
        ("model.json", "model.json", ".xgb.json"),
        ("some/folder/iris.onnx", "iris", ".onnx"),
        ("cafe\u0301.onnx", "café", ".onnx"),
    ],
)
def test_a_model_is_called_by_its_file_unless_it_has_an_id(
    file_name: str, model_id: str, suffix: str
) -> None:
    wish = read_wish({}, file_name)
    assert (wish.model_id, wish.suffix) == (model_id, suffix)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"max_batchsize": "1"},
            "'max_batchsize' is no field of an upload; did you mean max_batch",
        ),
        ({"path": "/etc"}, "'path' is no field"),
        ({"max_batch_size": "x"}, "max_batch_size: 'x' was given; expected a whole number from 1"),
        ({"max_batch_size": "0"}, "max_batch_size: '0' was given"),
        ({"idle_timeout_secs": "nan"}, "idle_timeout_secs: 'nan' was given; expected a number"),
        ({"pinned": "maybe"}, "pinned: 'maybe' was given; expected true or false"),
        ({"device": "gpu"}, "device: 'gpu' was given; expected one of auto, coreml"),
        ({"routing_strategy": "best"}, "expected one of least_queue, random"),
        ({"overwrite": "yes"}, "overwrite must be true or false, not 'yes'"),
        ({"model_id": ".."}, "'..' is not a possible model_id: it starts with a dot"),
        ({"model_id": "../x"}, "it starts with a dot"),
        ({"model_id": "a/b"}, "it contains a slash"),
        ({"model_id": "a\\b"}, "it contains a slash or a backslash"),
        ({"model_id": "a\0"}, "it contains a control character"),
        ({"model_id": "x" * 256}, "it is longer than 255 bytes"),
        ({"model_id": ".uploads"}, "it starts with a dot"),
        ({"model_id": "models.toml"}, "something else has this name"),
        ({"model_id": "Models.JSON"}, "something else has this name"),
    ],
)
def test_what_cannot_be_asked_for(fields: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_wish(fields, "iris.onnx")
    assert why in refusal.value.message


@pytest.mark.parametrize("name", ["", "model", "model.bin", "model.safetensors", "model.py", "..",
                                  "model.pkl", "m.tar.gz"])  # fmt: skip
def test_what_is_no_model_by_its_name(name: str) -> None:
    with pytest.raises(InvalidInput, match="is no model by its name; supported"):
        read_wish({"model_id": "a"}, name)
