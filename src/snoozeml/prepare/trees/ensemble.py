"""A forest as ONNX's TreeEnsemble operator (ai.onnx.ml, version 5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from onnx import numpy_helper

from snoozeml.prepare.trees.columns import Columns
from snoozeml.prepare.trees.forest import NO_CHILD, Array, Forest, Tree

DOMAIN: Final = "ai.onnx.ml"

_MODES: Final = {"<=": 0, "<": 1}
_MEMBER: Final = 6
_SUM: Final = 1
_END: Final = np.array([np.nan])
_NOBODY: Final = np.array([0.5])  # is no category; the operator wants a member in every list


def ensemble_attributes(forest: Forest, columns: Columns) -> dict[str, Any]:
    """The operator's attributes.

    Each target's start is added to the leaves of its first tree, so that sums are rounded where the
    library rounds them.

    Args:
        columns: what the operator is fed.
    """
    trees = [
        one
        for tree in map(_with_test, forest.trees)
        for one in _per_target(replace(tree, feature=columns.of(tree)))
    ]
    pieces = list(_laid_out(_started(trees, forest.base), _MODES[forest.comparison]))
    joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    typed = {
        "nodes_splits": forest.dtype,
        "leaf_weights": forest.dtype,
        "membership_values": forest.dtype,
        "nodes_modes": np.dtype(np.uint8),
    }
    attributes: dict[str, Any] = {
        name: numpy_helper.from_array(values.astype(typed[name]), name)
        if name in typed
        else values.astype(np.int64).tolist()
        for name, values in joined.items()
        if len(values)
    }
    return attributes | {"n_targets": forest.targets, "aggregate_function": _SUM}


def _with_test(tree: Tree) -> Tree:
    """A tree that is one leaf gets another one: the operator wants a test at every root."""
    if not tree.is_leaf[0]:
        return tree
    leaf = np.array([NO_CHILD, NO_CHILD])
    return replace(
        tree,
        yes=np.concatenate([[1], leaf]),
        no=np.concatenate([[2], leaf]),
        feature=np.zeros(3, np.int64),
        split=np.zeros(3),
        missing_yes=np.zeros(3, np.bool_),
        view=np.zeros(3, np.int64),
        weight=np.repeat(tree.weight[:1], 3, axis=0),
        members={},
    )


def _per_target(tree: Tree) -> list[Tree]:
    """Leaves of the operator add to one target only."""
    if tree.weight.ndim == 1:
        return [tree]
    return [
        replace(tree, target=target, weight=weight) for target, weight in enumerate(tree.weight.T)
    ]


def _started(trees: Sequence[Tree], base: Array) -> Iterator[Tree]:
    starts = dict(enumerate(base))
    for tree in trees:
        start = starts.pop(tree.target, None)
        yield tree if start is None else replace(tree, weight=start + tree.weight)


def _laid_out(trees: Iterator[Tree], mode: int) -> Iterator[Mapping[str, Array]]:
    """Each tree's share of the attributes: inner nodes and leaves are counted apart."""
    first_node = first_leaf = 0
    for tree in trees:
        is_leaf = tree.is_leaf
        inner, leaves = np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)
        place = np.where(is_leaf, np.cumsum(is_leaf) + first_leaf, np.cumsum(~is_leaf) + first_node)
        place -= 1
        yes, no = tree.yes[inner], tree.no[inner]
        members = sorted(tree.members)
        modes = np.full(len(tree.yes), mode)
        modes[members] = _MEMBER
        yield {
            "tree_roots": np.array([first_node]),
            "nodes_featureids": tree.feature[inner],
            "nodes_splits": tree.split[inner],
            "nodes_modes": modes[inner],
            "nodes_missing_value_tracks_true": tree.missing_yes[inner],
            "nodes_truenodeids": place[yes],
            "nodes_trueleafs": is_leaf[yes],
            "nodes_falsenodeids": place[no],
            "nodes_falseleafs": is_leaf[no],
            "leaf_targetids": np.full(len(leaves), tree.target),
            "leaf_weights": tree.weight[leaves],
            "membership_values": _members(tree, members),
        }
        first_node, first_leaf = first_node + len(inner), first_leaf + len(leaves)


def _members(tree: Tree, nodes: Sequence[int]) -> Array:
    found = (tree.members[node] for node in nodes)
    lists = [part for members in found for part in (members if members.size else _NOBODY, _END)]
    return np.concatenate([np.zeros(0), *lists])
