"""The columns that nodes test: the features as they come, and some of them seen in other ways."""

from typing import Final

import numpy as np

from snoozeml.prepare.trees.forest import Array, Forest, Tree, View
from snoozeml.prepare.trees.nodes import Arithmetic

_TINY: Final = float(np.float32(1e-35))
"""LightGBM takes values up to this for 0."""

_FEATURE_AXIS: Final = 1


class Columns:
    """The input of a forest's operator: all features, then a column per other view of a feature."""

    def __init__(self, forest: Forest) -> None:
        self._forest: Final = forest
        self._derived: Final = {view: _features_in(forest, view) for view in View if view}

    def of(self, tree: Tree) -> Array:
        """The column that each node of a tree tests."""
        columns = tree.feature.copy()
        first = self._forest.features
        for view, features in self._derived.items():
            nodes = tree.view == view
            columns[nodes] = first + np.searchsorted(features, tree.feature[nodes])
            first += len(features)
        return columns

    def add_to(self, maths: Arithmetic, features: str) -> str:
        """Add what makes the columns of the features; gives the name of the result."""
        plain = self._tiny_as_zero(maths, features) if self._compares_with_tiny() else features
        parts = [plain]
        for view, wanted in self._derived.items():
            if wanted.size:
                picked = maths.add("Gather", features, maths.constant(wanted), axis=_FEATURE_AXIS)
                parts.append(self._seen(maths, picked, view))
        return maths.add("Concat", *parts, axis=_FEATURE_AXIS) if len(parts) > 1 else plain

    def _seen(self, maths: Arithmetic, picked: str, view: View) -> str:
        if view == View.ZERO_IS_MISSING:
            missing = maths.number(np.nan)
            return maths.add("Where", self._is_tiny(maths, picked), missing, picked)
        floor = maths.add("Floor", picked)
        if self._forest.category_rounding == "floor":
            return floor
        is_negative = maths.add("Less", picked, maths.number(0))
        return maths.add("Where", is_negative, maths.add("Ceil", picked), floor)

    def _tiny_as_zero(self, maths: Arithmetic, features: str) -> str:
        zero = maths.number(0)
        return maths.add("Where", self._is_tiny(maths, features), zero, features)

    def _is_tiny(self, maths: Arithmetic, values: str) -> str:
        limit = maths.number(_TINY)
        return maths.add("LessOrEqual", maths.add("Abs", values), limit)

    def _compares_with_tiny(self) -> bool:
        """Whether it makes a difference to any plain test that tiny values count as 0."""
        return self._forest.tiny_is_zero and any(
            ((tree.split >= -_TINY) & (tree.split < _TINY) & _tests(tree, View.PLAIN)).any()
            for tree in self._forest.trees
        )


def _tests(tree: Tree, view: View) -> Array:
    found: Array = ~tree.is_leaf & (tree.view == view)
    return found


def _features_in(forest: Forest, view: View) -> Array:
    return np.unique(np.concatenate([tree.feature[_tests(tree, view)] for tree in forest.trees]))
