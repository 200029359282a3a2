"""Inputs of a model that does not say what it takes: each request says it for itself."""

import re
from typing import Final, cast

import msgspec

from snoozeml.core.tensors import Datatype, TensorSpec
from snoozeml.errors import InvalidInput, ShapeMismatch
from snoozeml.wire.json_data import DataReader, check_datatype
from snoozeml.wire.json_values import quoted
from snoozeml.wire.shapes import MOST_DIMENSIONS, Shape
from snoozeml.wire.tensors import Array

_FIRST_VALUE: Final = re.compile(rb"[\[\s]*(.)", re.DOTALL)


def open_spec(name: str, datatype: str | None, shape: Shape, data: object) -> TensorSpec:
    """What a request's tensor says about itself; without a datatype, its values tell.

    Numbers are FP32 then, whole ones too, because clients that name no datatype think in floats.
    BF16, which numpy lacks, becomes FP32 as well.

    Args:
        data: JSON text, or what `parse_exactly` made of it.

    Raises:
        InvalidInput: the datatype is none.
        ShapeMismatch: no array has so many dimensions; nothing is reckoned with them before this.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeMismatch(
            f"input {quoted(name)} has {len(shape)} dimensions;"
            f" no tensor has more than {MOST_DIMENSIONS}"
        )
    datatype = _implied(data) if datatype is None else datatype
    check_datatype(name, datatype)
    kept = "FP32" if datatype == "BF16" else cast("Datatype", datatype)
    return TensorSpec(name, kept, (None,) * len(shape))


def read_open(spec: TensorSpec, data: object, shape: Shape, named: str | None) -> Array:
    """Read the data of a JSON request.

    Args:
        named: the datatype that it names, if it does.

    Raises:
        InvalidInput, ShapeMismatch: as `DataReader` does.
    """
    # Made anew each time: what is kept by name would be kept by names that clients make up.
    reader = DataReader(spec, "wants" if named is None else "is stated as")
    try:
        return reader.read(data, shape)
    except InvalidInput as error:
        if named is not None or error.code != InvalidInput.code:
            raise
        raise InvalidInput(
            f"{error.message}; without a datatype it is read as {spec.datatype}, so name another"
        ) from None


def read_stated(name: str, datatype: str, shape: Shape, data: object) -> Array:
    """Read JSON data as what a request says they are.

    Raises:
        InvalidInput, ShapeMismatch: as `open_spec` and `read_open` do.
    """
    return read_open(open_spec(name, datatype, shape, None), data, shape, datatype)


def _implied(data: object) -> Datatype:
    first = _first_character(bytes(data)) if isinstance(data, msgspec.Raw) else _first_value(data)
    if isinstance(first, str):
        return "BYTES"
    return "BOOL" if isinstance(first, bool) else "FP32"


def _first_character(text: bytes) -> object:
    match = _FIRST_VALUE.match(text)
    return {b'"': "", b"t": True, b"f": False}.get(match[1] if match else b"")


def _first_value(data: object) -> object:
    while isinstance(data, list) and data:
        data = data[0]
    return data
