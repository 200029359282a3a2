"""What the engine says about a model, and what of it cannot be served."""

from types import SimpleNamespace
from typing import Any

import pytest

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import ModelFailed
from snoozeml.prepare.signature import read_signature


def session(
    inputs: list[tuple[str, str, list[Any]]], outputs: list[tuple[str, str, list[Any]]]
) -> Any:
    def nodes(tensors: list[tuple[str, str, list[Any]]]) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=n, type=t, shape=s) for n, t, s in tensors]

    return SimpleNamespace(get_inputs=lambda: nodes(inputs), get_outputs=lambda: nodes(outputs))


def test_dimensions_are_fixed_named_or_open() -> None:
    opened = session(
        [("text", "tensor(string)", ["batch", None, 3])],
        [("scores", "tensor(float)", ["", 0]), ("n", "tensor(int64)", [])],
    )
    assert read_signature(opened) == Signature(
        (TensorSpec("text", "BYTES", ("batch", None, 3)),),
        (TensorSpec("scores", "FP32", (None, 0)), TensorSpec("n", "INT64", ())),
    )


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("seq(map(int64,tensor(float)))", "'zipmap': False"),
        ("sparse_tensor(float)", "only plain tensors"),
        ("optional(tensor(float))", "only plain tensors"),
        ("tensor(float8e4m3fn)", "datatype float8e4m3fn"),
    ],
)
def test_what_no_request_could_carry_is_refused(type_: str, message: str) -> None:
    for opened in (session([("x", type_, [])], []), session([], [("x", type_, [])])):
        with pytest.raises(ModelFailed) as failure:
            read_signature(opened)
        assert "'x'" in failure.value.message
        assert message in failure.value.message


def test_an_input_of_unknown_rank_is_refused() -> None:
    opened = session([("x", "tensor(float)", [])], [])
    with pytest.raises(ModelFailed, match="'x' does not say how many dimensions"):
        read_signature(opened, unranked_inputs={"x"})
