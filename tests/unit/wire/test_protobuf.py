"""Looking into messages without decoding them: the same as the library sees, or a clear error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.errors import InvalidInput
from snoozeml.wire.proto.oip_pb2 import InferParameter, ModelInferRequest
from snoozeml.wire.protobuf import Malformed, fields, number, tag, text, varint

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(NAMES, NAMES, st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 2**64 - 1))
def test_fields_are_those_that_the_library_wrote(
    name: str, id: str, raw: list[bytes], timeout: int
) -> None:
    message = ModelInferRequest(model_name=name, id=id, raw_input_contents=raw)
    message.parameters["timeout"].uint64_param = timeout
    body = message.SerializeToString()
    found = list(fields(body))
    assert [text(body, value) for field, value in found if field == 1] == [name] * bool(name)
    assert [text(body, value) for field, value in found if field == 3] == [id] * bool(id)
    assert [body[value] for field, value in found if field == 7 and isinstance(value, slice)] == raw
    (entry,) = [value for field, value in found if field == 4]
    assert isinstance(entry, slice)
    (parameter,) = [value for field, value in fields(body, entry) if field == 2]
    assert isinstance(parameter, slice)
    assert [number(value) for _, value in fields(body, parameter)] == [timeout]


def test_numbers_of_fixed_size_are_walked_over() -> None:
    body = InferParameter(double_param=1.0).SerializeToString() + b"\x0d\x02\0\0\0" + b"\x08\x07"
    assert list(fields(body)) == [(4, 0x3FF0000000000000), (1, 2), (1, 7)]


@given(st.binary(max_size=60))
def test_whatever_comes_it_is_fields_or_a_clear_error(body: bytes) -> None:
    try:
        found = list(fields(body))
    except Malformed:
        return
    assert all(0 <= v.start <= v.stop <= len(body) for _, v in found if isinstance(v, slice))


@pytest.mark.parametrize(
    "body",
    [b"\x0a", b"\x0a\x05abc", b"\x08", b"\x08\x80", b"\x09abc", b"\x0d\0", b"\x0b", b"\x80" * 12],
)
def test_what_is_cut_off_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed, match="not valid protobuf"):
        list(fields(body))


def test_fields_without_end_are_refused_soon() -> None:
    with pytest.raises(InvalidInput, match="more than 4096 fields"):
        list(fields(b"\x08\x01" * 10**6))


@pytest.mark.parametrize("wrong", [slice(0, 1), 5])
def test_a_text_that_is_none_is_malformed(wrong: slice | int) -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        text(b"\xff", wrong)


def test_a_number_that_is_none_is_malformed() -> None:
    with pytest.raises(Malformed, match="number"):
        number(slice(0, 1))


@given(st.integers(1, 2**29 - 1), st.binary(max_size=300))
def test_what_we_write_can_be_read(field: int, value: bytes) -> None:
    body = tag(field) + varint(len(value)) + value
    ((found, where),) = fields(body)
    assert isinstance(where, slice)
    assert (found, body[where]) == (field, value)
