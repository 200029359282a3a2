"""The shapes that a model's inputs may have."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from snoozeml.core.tensors import DYNAMIC, TensorSpec
from snoozeml.errors import ShapeMismatch

Shape = Sequence[int]

_ROWS: Final = "\0rows"
"""Stands for the size of every batch axis; no symbol of a graph contains a NUL."""

_LARGEST_EMPTY: Final = 0xFFFF
"""The largest dimension of a tensor without elements. No data backs such a size, so a few bytes
could ask for runs without end; with elements, the size of the body is the limit."""

_SHOWN_DIMENSIONS: Final = 64  # what no array can exceed need not be shown


class ShapeRules:
    """Checks the shapes of a request against the signature, before any value is converted.

    A batch axis may have any size, but the same in every input; so may a symbolic dimension.
    """

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        aliases = _symbols_of_batch_axes(specs)
        symbols = {spec.name: _symbols(spec, aliases) for spec in specs}
        places = Counter(symbol for found in symbols.values() for _, symbol in found)
        self._rules: Final = [
            _Rule(
                spec, [(axis, symbol) for axis, symbol in symbols[spec.name] if places[symbol] > 1]
            )
            for spec in specs
        ]

    def check(self, shapes: Mapping[str, Shape]) -> None:
        """Check one shape per input; dimensions are not negative.

        Raises:
            ShapeMismatch: the rank or a fixed dimension is wrong, or inputs that share a dimension
                disagree about it.
        """
        seen: dict[str, tuple[str, int]] = {}
        for rule in self._rules:
            shape = shapes[rule.name]
            rule.check(shape)
            for axis, symbol in rule.shared:
                name, size = seen.setdefault(symbol, (rule.name, shape[axis]))
                if size != shape[axis]:
                    raise ShapeMismatch(
                        f"{_described(symbol)} must be the same in all inputs, got {size} in"
                        f" {name!r} and {shape[axis]} in {rule.name!r}"
                    )


class _Rule:
    """One input; `shared` lists the axes whose size must agree with another place."""

    def __init__(self, spec: TensorSpec, shared: Sequence[tuple[int, str]]) -> None:
        self.name: Final = spec.name
        self.shared: Final = shared
        self._wanted: Final = spec.public_shape
        if spec.batch_axis is not None:  # even where the graph has a 1: rows are fed one by one
            self._wanted[spec.batch_axis] = DYNAMIC
        self._fixed: Final = [(axis, n) for axis, n in enumerate(self._wanted) if n != DYNAMIC]

    def check(self, shape: Shape) -> None:
        if len(shape) != len(self._wanted):
            raise self._mismatch(shape)
        for axis, size in self._fixed:
            if shape[axis] != size:
                raise self._mismatch(shape)
        if 0 in shape and max(shape) > _LARGEST_EMPTY:
            raise ShapeMismatch(
                f"input {self.name!r} has no elements, so no dimension may be larger than "
                f"{_LARGEST_EMPTY}, got {list(shape)}"
            )

    def _mismatch(self, shape: Shape) -> ShapeMismatch:
        got = list(shape) if len(shape) <= _SHOWN_DIMENSIONS else f"{len(shape)} dimensions"
        return ShapeMismatch(f"input {self.name!r} wants {self._wanted}, got {got}")


def _symbols_of_batch_axes(specs: Sequence[TensorSpec]) -> dict[str, str]:
    """What the graph calls the number of rows, wherever else it may use that symbol."""
    dims = (spec.shape[spec.batch_axis] for spec in specs if spec.batch_axis is not None)
    return {dim: _ROWS for dim in dims if isinstance(dim, str)}


def _symbols(spec: TensorSpec, aliases: Mapping[str, str]) -> list[tuple[int, str]]:
    found = []
    for axis, dim in enumerate(spec.shape):
        if axis == spec.batch_axis:
            found.append((axis, _ROWS))
        elif isinstance(dim, str):
            found.append((axis, aliases.get(dim, dim)))
    return found


def _described(symbol: str) -> str:
    return "the number of rows" if symbol == _ROWS else f"dimension {symbol!r}"
