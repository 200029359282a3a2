"""The shapes that a model's inputs may have."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final

from snoozeml.core.tensors import DYNAMIC, Dim, TensorSpec
from snoozeml.errors import ShapeMismatch
from snoozeml.wire.json_values import quoted

Shape = Sequence[int]

_ROWS: Final = "\0rows"
"""With the name of a group, stands for the size of every batch axis in it; no symbol of a graph
contains a NUL."""

_LARGEST_EMPTY: Final = 0xFFFF
"""The largest dimension of a tensor without elements. No data backs such a size, so a few bytes
could ask for runs without end; with elements, the size of the body is the limit."""

MOST_DIMENSIONS: Final = 64
"""Of an array of numpy 2. The product of many more takes seconds, and is too long to print."""


class ShapeRules:
    """Checks the shapes of a request against the signature, before any value is converted.

    A batch axis may have any size, but the same in every input of a group; so may a symbolic
    dimension in all inputs.
    """

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        symbols_of_rows = _symbols_of_batch_axes(specs)
        symbols = {spec.name: _symbols(spec, symbols_of_rows) for spec in specs}
        places = Counter(symbol for found in symbols.values() for _, symbol in found)
        self._rules: Final = {
            spec.name: _Rule(
                spec, [(axis, symbol) for axis, symbol in symbols[spec.name] if places[symbol] > 1]
            )
            for spec in specs
        }

    def check(self, shapes: Mapping[str, Shape], left_out: Sequence[str] = ()) -> dict[str, Shape]:
        """Check the shapes of the inputs that are given; dimensions are not negative.

        Args:
            left_out: names of inputs that shall be filled with their defaults.

        Returns:
            The shapes of those left out.

        Raises:
            ShapeMismatch: the rank or a fixed dimension is wrong, a length is beyond its limit, or
                inputs that share a dimension disagree about it.
        """
        seen: dict[str, tuple[str, int]] = {}
        for name, shape in shapes.items():
            rule = self._rules[name]
            rule.check(shape)
            for axis, symbol in rule.shared:
                name, size = seen.setdefault(symbol, (rule.name, shape[axis]))
                if size != shape[axis]:
                    raise ShapeMismatch(
                        f"{_described(symbol)} must be the same in all inputs, got {size} in"
                        f" {name!r} and {shape[axis]} in {rule.name!r}"
                    )
        if not left_out:
            return {}
        sizes = {symbol: size for symbol, (_, size) in seen.items()}
        return {name: self._rules[name].shape(sizes) for name in left_out}


class _Rule:
    """One input; `shared` lists the axes whose size must agree with another place."""

    def __init__(self, spec: TensorSpec, shared: Sequence[tuple[int, str]]) -> None:
        self.name: Final = spec.name
        self.shared: Final = shared
        self._wanted: Final = spec.public_shape
        if spec.batch_axis is not None:  # even where the graph has a 1: rows are fed one by one
            self._wanted[spec.batch_axis] = DYNAMIC
        self._min_length: Final = spec.min_length
        self._max_length: Final = spec.max_length
        self._ragged_axis: Final = spec.ragged_axis or 0
        self._fixed: Final = [(axis, n) for axis, n in enumerate(self._wanted) if n != DYNAMIC]

    def check(self, shape: Shape) -> None:
        if len(shape) != len(self._wanted):
            raise self._mismatch(shape)
        for axis, size in self._fixed:
            if shape[axis] != size:
                raise self._mismatch(shape)
        if self._max_length is not None and shape[self._ragged_axis] > self._max_length:
            raise ShapeMismatch(
                f"input {quoted(self.name)} may be {self._max_length} long on axis"
                f" {self._ragged_axis}, got {shape[self._ragged_axis]}"
            )
        if shape.count(0) == 1 and self._min_length > shape[self._ragged_axis]:
            raise ShapeMismatch(
                f"input {quoted(self.name)} must be {self._min_length} long or more on axis"
                f" {self._ragged_axis}, got {shape[self._ragged_axis]}"
            )
        if 0 in shape and max(shape) > _LARGEST_EMPTY:
            raise ShapeMismatch(
                f"input {quoted(self.name)} has no elements, so no dimension may be larger than "
                f"{_LARGEST_EMPTY}, got {list(shape)}"
            )

    def shape(self, sizes: Mapping[str, int]) -> Shape:
        """The shape of this input as the sizes of what it shares with others determine it."""
        shape = list(self._wanted)
        for axis, symbol in self.shared:
            shape[axis] = sizes[symbol]
        return shape

    def _mismatch(self, shape: Shape) -> ShapeMismatch:
        got = list(shape) if len(shape) <= MOST_DIMENSIONS else f"{len(shape)} dimensions"
        return ShapeMismatch(f"input {quoted(self.name)} wants {self._wanted}, got {got}")


def _symbols_of_batch_axes(specs: Sequence[TensorSpec]) -> set[tuple[str | None, Dim]]:
    """What the graph calls the number of rows in each group, wherever else it may use that."""
    return {
        (spec.group, dim)
        for spec in specs
        if spec.batch_axis is not None and isinstance(dim := spec.shape[spec.batch_axis], str)
    }


def _symbols(
    spec: TensorSpec, symbols_of_rows: Set[tuple[str | None, Dim]]
) -> list[tuple[int, str]]:
    found = []
    for axis, dim in enumerate(spec.shape):
        if axis == spec.batch_axis or (spec.group, dim) in symbols_of_rows:
            found.append((axis, _ROWS + (spec.group or "")))
        elif isinstance(dim, str):
            found.append((axis, dim))
    return found


def _described(symbol: str) -> str:
    return "the number of rows" if symbol.startswith(_ROWS) else f"dimension {symbol!r}"
