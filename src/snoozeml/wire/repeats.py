"""Requests that are like the last ones but for the values in their tensors.

A client sends the same kind of request again and again. To find that out by comparing bytes takes a
sixth of the time that it takes to parse the message and to check its names and shapes anew.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput
from snoozeml.wire.assembly import Given
from snoozeml.wire.bounds import check_bounds
from snoozeml.wire.tensors import DTYPES, Array, Inference, Tensors

_MOST: Final = 64
"""Lengths of requests that are remembered; when there are more, all are forgotten."""

_AS_THEY_ARE: Final = frozenset(DTYPES) - {"BOOL", "BYTES"}
"""Datatypes whose bytes are values, whatever they are."""

FindValues = Callable[[bytes], Sequence[slice]]
"""Where the values of each input lie in a body, in the order of the inputs."""


class Repeats:
    """Remembers one form of request for each length in bytes, once it has come twice.

    INVARIANT: whatever `read` gives is what decoding the body from scratch would have given. Bodies
    that are equal outside of the values are the same request but for the values.
    """

    def __init__(self, signature: Signature, find_values: FindValues) -> None:
        self._specs: Final = {spec.name: spec for spec in signature.inputs}
        self._find_values: Final = find_values
        self._forms: Final[dict[int, _Form | None]] = {}

    def read(self, body: bytes) -> Inference | None:
        """Decode a body that has a form that is known; None: it has not.

        Raises:
            InvalidInput: a value is out of bounds.
        """
        form = self._forms.get(len(body))
        return None if form is None else form.read(body)

    def learn(self, body: bytes, tensors: Sequence[Given], inference: Inference) -> None:
        """Take note of a request that `read` did not know: its tensors, and what became of them."""
        size, forms = len(body), self._forms
        if size not in forms:
            if len(forms) == _MOST:
                forms.clear()
            forms[size] = None  # a form that comes once is not worth the work
        elif forms[size] is None:
            forms[size] = self._form(body, tensors, inference)

    def _form(self, body: bytes, given: Sequence[Given], inference: Inference) -> "_Form | None":
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
        return _Form(body, tensors, inference)

    def _is_as_it_is(self, tensor: Given) -> bool:
        """Whether a tensor's bytes are the model's own, and none of them is wrong."""
        spec = self._specs.get(tensor.name)
        return spec is not None and tensor.datatype == spec.datatype in _AS_THEY_ARE


class _Values:
    """One tensor of a form."""

    __slots__ = ("_dtype", "_shape", "_spec", "name", "where")

    def __init__(self, spec: TensorSpec, like: Array, where: slice) -> None:
        self.name: Final = spec.name
        self.where: Final = where
        self._spec: Final = spec
        self._dtype: Final = like.dtype.newbyteorder("<")
        self._shape: Final = like.shape

    def of(self, body: bytes) -> Array:
        array = np.frombuffer(body[self.where], self._dtype).reshape(self._shape)
        check_bounds(self._spec, array)
        return array


class _Form:
    """A request without its values.

    Args:
        tensors: in the order in which their values stand in the body.
    """

    def __init__(self, body: bytes, tensors: Sequence[_Values], like: Inference) -> None:
        edges = [0, *(edge for t in tensors for edge in (t.where.start, t.where.stop)), len(body)]
        between = [slice(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]
        self._between: Final = [(where, body[where]) for where in between]
        self._tensors: Final = tensors
        self._outputs: Final = like.outputs
        self._reply_as: Final[Any] = like.reply_as

    def read(self, body: bytes) -> Inference | None:
        for where, wanted in self._between:
            if body[where] != wanted:
                return None
        inputs: Tensors = {tensor.name: tensor.of(body) for tensor in self._tensors}
        return Inference(inputs, self._outputs, self._reply_as)
