"""Requests that are like the last ones but for the values in their tensors.

To find that out by comparing bytes takes a tenth of the time that it takes to parse the message and
to check its names and shapes anew. Nor do such requests need an array each: their values are joined
as bytes, and become one array.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput
from snoozeml.wire.assembly import Given
from snoozeml.wire.bounds import check_bounds
from snoozeml.wire.outlines import Outlines
from snoozeml.wire.tensors import DTYPES, Array, Inference, Tensors

_AS_THEY_ARE: Final = frozenset(DTYPES) - {"BOOL", "BYTES"}
"""Datatypes whose bytes are values, whatever they are."""

FindValues = Callable[[bytes], Sequence[slice]]
"""Where the values of each input lie in a body, in the order of the inputs."""


class Repeated(msgspec.Struct, gc=False):
    """A request of a form that is known; see `Inference`, whose attributes it has as well."""

    form: "Form"
    body: bytes

    @property
    def inputs(self) -> Tensors:
        return self.form.tensors((self.body,))

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.form.outputs

    @property
    def reply_as(self) -> Any:
        return self.form.reply_as


Decoded = Inference | Repeated


class Repeats:
    """Remembers forms of requests to one model.

    INVARIANT: whatever `read` gives is what decoding the body from scratch would have given. Bodies
    that are equal outside of the values are the same request but for the values.
    """

    def __init__(self, signature: Signature, find_values: FindValues) -> None:
        self._specs: Final = {spec.name: spec for spec in signature.inputs}
        self._find_values: Final = find_values
        self._forms: Final = Outlines[Form]()

    def read(self, body: bytes) -> Repeated | None:
        """Decode a body that has a form that is known; None: it has not.

        Raises:
            InvalidInput: a value is out of bounds.
        """
        form = self._forms.find(body)
        if form is None:
            return None
        if form.is_bounded:
            form.check_bounds(body)
        return Repeated(form, body)

    def learn(self, body: bytes, tensors: Sequence[Given], inference: Inference) -> None:
        """Take note of a request that `read` did not know: its tensors, and what became of them."""
        self._forms.learn(body, lambda: self._form(body, tensors, inference))

    def _form(
        self, body: bytes, given: Sequence[Given], inference: Inference
    ) -> "tuple[Sequence[slice], Form] | None":
        inputs = inference.inputs
        if len(inputs) != len(given) or not all(map(self._is_as_it_is, given)):
            return None
        try:
            values = self._find_values(body)
        except InvalidInput:  # the message classes put up with more than our own walk does
            return None
        if len(values) != len(given):
            return None
        pairs = zip(given, values, strict=True)
        tensors = [_Values(self._specs[t.name], inputs[t.name], where) for t, where in pairs]
        return values, Form(tensors, inference)

    def _is_as_it_is(self, tensor: Given) -> bool:
        """Whether a tensor's bytes are the model's own, and none of them is wrong."""
        spec = self._specs.get(tensor.name)
        return spec is not None and tensor.datatype == spec.datatype in _AS_THEY_ARE


class _Values:
    """One tensor of a form."""

    __slots__ = ("_dtype", "_shape", "name", "spec", "where")

    def __init__(self, spec: TensorSpec, like: Array, where: slice) -> None:
        self.name: Final = spec.name
        self.spec: Final = spec
        self.where: Final = where
        self._dtype: Final = like.dtype.newbyteorder("<")
        self._shape: Final = like.shape

    def of(self, bodies: Sequence[bytes]) -> Array:
        """Those of several requests stand one after another, along the first axis."""
        where, shape = self.where, self._shape
        array = np.frombuffer(b"".join([body[where] for body in bodies]), self._dtype)
        if len(bodies) > 1:
            shape = (len(bodies) * shape[0], *shape[1:])
        return array.reshape(shape)


class Form:
    """A request without its values.

    Attributes:
        is_bounded: not all values may be given; `check_bounds` knows.
        has_rows_first: requests of this form are joined by joining the bytes of their values.
        notes: for whoever wants to keep what he has found out about requests of this form.
    """

    def __init__(self, tensors: Sequence[_Values], like: Inference) -> None:
        self._tensors: Final = tensors
        self.is_bounded: Final = any(t.spec.bounds is not None for t in tensors)
        self.has_rows_first: Final = all(t.spec.batch_axis == 0 for t in tensors)
        self.outputs: Final = like.outputs
        self.reply_as: Final[Any] = like.reply_as
        self.notes: Any = None

    def check_bounds(self, body: bytes) -> None:
        """Raises InvalidInput: a value is out of bounds."""
        for tensor in self._tensors:
            check_bounds(tensor.spec, tensor.of((body,)))

    def tensors(self, bodies: Sequence[bytes]) -> Tensors:
        """The inputs of a request of this form, or of several together if `has_rows_first`."""
        return {tensor.name: tensor.of(bodies) for tensor in self._tensors}
