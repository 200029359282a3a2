"""What `predict` returned, as the outputs that were asked for."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from snoozeml.core.tensors import DYNAMIC, Signature, TensorSpec
from snoozeml.errors import InferenceFailed, InvalidInput
from snoozeml.wire.json_values import quoted
from snoozeml.wire.tensors import DATATYPES, DTYPES, Array, NamedArrays, Tensors


class Outputs:
    """Picks the outputs of a run; those that the signature declares come in its datatype."""

    def __init__(self, signature: Signature) -> None:
        self._is_open: Final = signature.open_outputs
        self._specs: Final = {spec.name: spec for spec in signature.outputs}

    def pick(self, found: Tensors, names: Sequence[str]) -> Sequence[Array]:
        """Pick outputs by name.

        Args:
            names: empty for all that an open model has given.

        Raises:
            InvalidInput: an open model has not given an output that was asked for.
            InferenceFailed: a declared output is missing, or is of another type or shape.
        """
        given = quoted(*found)
        missing = [name for name in names if name not in found]
        if self._is_open:
            if missing:
                raise InvalidInput(f"unknown output {quoted(*missing)}; the model gave {given}")
            names = names or tuple(found)
            return NamedArrays(names, [found[name] for name in names])
        if missing:
            raise InferenceFailed(f"predict gave {given}, without the declared {quoted(*missing)}")
        for name in names:
            _check_shape(self._specs[name], found[name])
        return [_cast(name, found[name], DTYPES[self._specs[name].datatype]) for name in names]


def _check_shape(spec: TensorSpec, found: Array) -> None:
    wanted = spec.public_shape
    if len(wanted) != found.ndim or any(
        dim not in (DYNAMIC, size) for dim, size in zip(wanted, found.shape, strict=True)
    ):
        raise InferenceFailed(
            f"output {spec.name!r} has the shape {list(found.shape)}, but is declared as {wanted}"
        )


def _cast(name: str, found: Array, dtype: np.dtype[Any]) -> Array:
    """Code computes in the types that are handy; whole numbers and text are never made up."""
    if found.dtype == dtype:
        return found
    is_text = found.dtype.hasobject or dtype.hasobject
    if is_text or not np.can_cast(found.dtype, dtype, "same_kind"):
        raise InferenceFailed(
            f"output {name!r} is {DATATYPES[found.dtype]}, but declared as {DATATYPES[dtype]}"
        )
    with np.errstate(over="ignore"):
        cast = found.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(cast, found):
        raise InferenceFailed(f"output {name!r} holds numbers beyond {DATATYPES[dtype]}")
    return cast
