"""What a worker wants of a dialect."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from snoozeml.wire.repeats import Decoded
from snoozeml.wire.tensors import Array

WriteRows = Callable[[slice, float], bytes]
"""Writes the answer of some rows of a run, to a request that took so many seconds."""


class Dialect(Protocol):
    """Decodes requests to one model and encodes its answers."""

    @abstractmethod
    def decode(self, body: bytes, /) -> Decoded:
        """Read a request; every input fits the signature, defaults included.

        Raises:
            InvalidInput: it is no request, or does not fit the model.
        """

    @abstractmethod
    def encode(
        self,
        names: Sequence[str],
        outputs: Sequence[Array],
        reply_as: Any,
        duration_s: float,
        /,
    ) -> bytes:
        """Write an answer; `reply_as` is what `decode` noted in the request."""

    def rows_writer(
        self, names: Sequence[str], outputs: Sequence[Array], reply_as: Any, /
    ) -> WriteRows:
        """Prepare to write answers of some rows each, as requests want them that are alike.

        Shapes:
            outputs: with the rows of all requests on axis 0.
        """

        def write(rows: slice, duration_s: float) -> bytes:
            return self.encode(names, [array[rows] for array in outputs], reply_as, duration_s)

        return write
