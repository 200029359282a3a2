"""The outer form of JSON bodies in every dialect: from text to structs, from arrays to text."""

import base64
from typing import Any, Final, Generic, TypeVar

import msgspec

from snoozeml.errors import InvalidInput
from snoozeml.wire.json_values import parse_exactly
from snoozeml.wire.tensors import Array

_Body = TypeVar("_Body")


class BodyParser(Generic[_Body]):
    """Parses bodies whose tensors hold their data as JSON text, to be read later.

    Args:
        fast: the struct of a body whose data is `msgspec.Raw`.
        exact: the same with data of any type; for JSON with NaN in it, which only
            `parse_exactly` takes.
        form: what a body should look like, for messages.
    """

    def __init__(self, fast: type[_Body], exact: type[_Body], form: str) -> None:
        self._decode: Final = msgspec.json.Decoder(fast).decode
        self._exact: Final = exact
        self._form: Final = form

    def parse(self, body: bytes | memoryview) -> _Body:
        """Parse a body.

        Raises:
            InvalidInput: it is no JSON, or JSON of another form.
        """
        try:
            return self._decode(body)
        except msgspec.ValidationError as error:
            raise self._not_a_request(error) from None
        except RecursionError:
            raise InvalidInput("the body nests its JSON too deeply") from None
        except msgspec.DecodeError as error:
            text = bytes(body)
            if not text.strip():
                raise InvalidInput(
                    f"the body is empty; a request is a JSON object {self._form}"
                ) from None
            if b"NaN" not in text and b"Infinity" not in text:
                raise InvalidInput(f"the body must be JSON in UTF-8: {error}") from None
        try:
            return msgspec.convert(parse_exactly(text), self._exact)
        except msgspec.ValidationError as error:
            raise self._not_a_request(error) from None

    def _not_a_request(self, error: msgspec.ValidationError) -> InvalidInput:
        return InvalidInput(f"{error}; a request is an object {self._form}")


def data_members(array: Array) -> dict[str, Any]:
    """The members of an answer's tensor that hold its values, for orjson.

    Text is text; if any of it is not UTF-8, then all of it is base64, with a note saying so.
    """
    flat = array.ravel()  # contiguous, as orjson needs it
    if not array.dtype.hasobject:
        return {"data": flat}
    raw = [value.encode() if isinstance(value, str) else value for value in flat.tolist()]
    try:
        return {"data": [value.decode() for value in raw]}
    except UnicodeDecodeError:
        encoded = [base64.b64encode(value).decode() for value in raw]
        return {"data": encoded, "parameters": {"content_type": "base64"}}
