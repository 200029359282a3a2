"""The normal form of a tree ensemble, whichever library trained it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DEEPEST: Final = 500
"""ONNX Runtime reads trees by recursion: with 512 KiB of stack, the least that a thread gets on any
system, it overflowed between 500 and 700 levels (measured). Trained trees are below 100 deep."""

NO_CHILD: Final = -1

_MOST_TARGETS: Final = 1 << 20  # classes or targets; a damaged number asks for all memory


class Malformed(Exception):
    """A model file is damaged, or uses what we do not support; the message says where and what."""


def check_targets(targets: int) -> None:
    """To be asked before anything is made of this size; raises Malformed."""
    if targets > _MOST_TARGETS:
        raise Malformed(f"it says that it has {targets} outputs, and {_MOST_TARGETS} is the limit")


class View(IntEnum):
    """What a node sees of its feature."""

    PLAIN = 0
    CATEGORY = 1
    """Rounded to the number of a category."""
    ZERO_IS_MISSING = 2


@dataclass(frozen=True)
class Tree:
    """One decision tree; node 0 is its root, and every array has one entry per node.

    Attributes:
        target: the output that its leaves add to.
        yes, no: next node of rows that pass the test and of those that do not; -1 in leaves.
        feature, view: what is tested.
        split: what it is compared with, in the datatype that the library compares in.
        missing_yes: whether rows in which the feature is missing count as passing.
        members: for nodes that test for membership instead: the categories that pass.
        weight: what a leaf adds, in the datatype that the library sums in; shape [nodes], or
            [nodes, targets] where leaves add to all targets at once (then `target` is 0).
    """

    yes: Array
    no: Array
    feature: Array
    split: Array
    missing_yes: Array
    weight: Array
    view: Array
    target: int = 0
    members: Mapping[int, Array] = field(default_factory=dict)

    @property
    def is_leaf(self) -> Array:
        found: Array = self.yes == NO_CHILD
        return found


@dataclass(frozen=True)
class Forest:
    """Trees whose leaves are summed per target, in their order.

    Attributes:
        comparison: what the test `feature ? split` is.
        base: what each target starts from, before the first tree is added.
        divisor: what the sums are divided by at the end.
        dtype: of splits, weights and sums. The sums are rounded as the library rounds them only if
            they are made one tree after the other.
        category_rounding: how a feature becomes the number of a category.
        tiny_is_zero: values up to 1e-35 count as 0 in all comparisons.
    """

    trees: Sequence[Tree]
    features: int
    targets: int
    comparison: Literal["<", "<="]
    base: Array
    dtype: np.dtype[Any]
    divisor: int = 1
    category_rounding: Literal["floor", "truncate"] = "floor"
    tiny_is_zero: bool = False

    @property
    def rounds_sums(self) -> bool:
        """Whether the library sums so coarsely that the order of the trees can be seen."""
        return self.dtype == np.float32

    def check(self) -> None:
        """See whether the trees are trees, and refer to nothing that is not there.

        Raises:
            Malformed: they are not; says which one and why.
        """
        if not self.trees:
            raise Malformed("the model holds no trees")
        if not 0 < self.features < 2**31:
            raise Malformed(f"the model claims to take {self.features} features")
        for number, tree in enumerate(self.trees):
            try:
                _check_tree(tree, self)
            except Malformed as error:
                raise Malformed(f"tree {number}: {error}") from None
        fed = {tree.target for tree in self.trees}
        if len(fed) < self.targets and self.trees[0].weight.ndim == 1:
            raise Malformed(f"there are {self.targets} outputs, but trees for only {len(fed)}")


def _check_tree(tree: Tree, forest: Forest) -> None:
    if not 0 <= tree.target < forest.targets:
        raise Malformed(f"it adds to output {tree.target}, and there are {forest.targets}")
    inner = np.flatnonzero(~tree.is_leaf)
    _check_nodes(tree, inner, forest.features)
    _check_links(tree, inner)
    _check_depth(tree)


def _check_nodes(tree: Tree, inner: Array, features: int) -> None:
    wrong = inner[(tree.feature[inner] < 0) | (tree.feature[inner] >= features)]
    if wrong.size:
        feature = tree.feature[wrong[0]]
        raise Malformed(f"node {wrong[0]} tests feature {feature}, and there are {features}")
    undefined = set(inner[np.isnan(tree.split[inner])].tolist()) - tree.members.keys()
    if undefined:
        raise Malformed(f"node {min(undefined)} compares with NaN")


def _check_links(tree: Tree, inner: Array) -> None:
    """No node has two parents, nor the root one; so what the root leads to is free of cycles."""
    count = len(tree.yes)
    for children in (tree.yes, tree.no):
        wrong = inner[(children[inner] < 0) | (children[inner] >= count)]
        if wrong.size:
            child = children[wrong[0]]
            raise Malformed(f"node {wrong[0]} leads to node {child}, and there are {count}")
    parents = np.bincount(np.concatenate([tree.yes[inner], tree.no[inner]]), minlength=count)
    if parents[0]:
        raise Malformed("some node leads back to the root")
    if parents.max() > 1:
        raise Malformed(f"more than one way leads to node {parents.argmax()}")


def _check_depth(tree: Tree) -> None:
    level = np.zeros(1, np.int64)
    for _ in range(DEEPEST):
        level = level[~tree.is_leaf[level]]
        if not level.size:
            return
        level = np.concatenate([tree.yes[level], tree.no[level]])
    raise Malformed(f"it is more than {DEEPEST} levels deep")
