"""The range of values that an input may have."""

from snoozeml.core.tensors import TensorSpec
from snoozeml.errors import InvalidInput
from snoozeml.wire.tensors import Array


def check_bounds(spec: TensorSpec, array: Array) -> None:
    """Check the values of an input, so that no token id reaches beyond a table.

    Raises:
        InvalidInput: a value lies outside the input's bounds.
    """
    if spec.bounds is None or not array.size:
        return
    lowest, stop = spec.bounds
    least, most = array.min(), array.max()
    if least < lowest or most >= stop:
        outside = least if least < lowest else most
        raise InvalidInput(
            f"input {spec.name!r} takes values from {lowest} to {stop - 1}, got {outside}"
        )
