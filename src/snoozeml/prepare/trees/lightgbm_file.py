"""LightGBM's models, from the text that `Booster.save_model` writes; releases 2.x to 4.x.

The library's own reader is the only description of the form. A tree has inner nodes 0, 1, … and
leaves that children refer to as -1, -2, …; in the normal form leaves come after the inner nodes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from snoozeml.prepare.trees.fields import integer, numbers, text
from snoozeml.prepare.trees.forest import (
    NO_CHILD,
    Array,
    Forest,
    Malformed,
    Tree,
    View,
    check_targets,
)
from snoozeml.prepare.trees.links import Link

Fields = dict[str, str]

_DOUBLE: Final = np.dtype(np.float64)
_WHOLE: Final = np.dtype(np.int64)

# The bits of a node's `decision_type`.
_CATEGORICAL: Final = 1
_DEFAULT_LEFT: Final = 2
_MISSING_SHIFT: Final = 2
_MISSING_ZERO: Final = 1
_MISSING_NAN: Final = 2

_BITS: Final = 32  # a set of categories is a bit field in words of so many bits

_MEANS: Final = Link()
_POSITIVE: Final = Link("exp")
_SIMPLE: Final[dict[str, Link]] = {
    "regression": _MEANS,
    "regression_l2": _MEANS,
    "regression_l1": _MEANS,
    "huber": _MEANS,
    "fair": _MEANS,
    "quantile": _MEANS,
    "mape": _MEANS,
    "lambdarank": _MEANS,
    "rank_xendcg": _MEANS,
    "custom": _MEANS,
    "none": _MEANS,
    "poisson": _POSITIVE,
    "gamma": _POSITIVE,
    "tweedie": _POSITIVE,
    "cross_entropy": Link("sigmoid"),
    "xentropy": Link("sigmoid"),  # what releases before 2.3 called it
    "cross_entropy_lambda": Link("log1p_exp"),
    "xentlambda": Link("log1p_exp"),
    "multiclass": Link("softmax", "multiclass"),
}
_SCALED: Final[dict[str, Callable[[float], Link]]] = {
    "binary": lambda scale: Link("sigmoid", "binary", scale),
    "multiclassova": lambda scale: Link("sigmoid", "multiclass", scale),
}

OBJECTIVES: Final = (*_SIMPLE, *_SCALED)


def read_lightgbm(content: bytes) -> tuple[Forest, Link]:
    """Read a model.

    Raises:
        Malformed: it is damaged, or of a kind that is not supported.
    """
    head, parts = _sections(content)
    targets = integer(head, "num_tree_per_iteration", 1)
    if targets < 1:
        raise Malformed(f"num_tree_per_iteration is {targets}")
    check_targets(targets)
    trees = [_numbered_tree(number, fields, targets) for number, fields in enumerate(parts)]
    forest = Forest(
        trees=trees,
        features=integer(head, "max_feature_idx") + 1,
        targets=targets,
        comparison="<=",
        base=np.broadcast_to(_DOUBLE.type(0), targets),
        dtype=_DOUBLE,
        divisor=math.ceil(len(trees) / targets) if "average_output" in head else 1,
        category_rounding="truncate",
        tiny_is_zero=True,
    )
    return forest, _link(head.get("objective", "custom").split())


def _sections(content: bytes) -> tuple[Fields, list[Fields]]:
    """The fields before the first tree, and those of each tree."""
    lines = content.decode(errors="replace").split("\n")  # names of features are in any encoding
    if lines[0].strip() != "tree":
        raise Malformed("it is not a LightGBM model: its first line is not 'tree'")
    sections: list[Fields] = [{}]
    for line in map(str.strip, lines[1:]):
        name, _, value = line.partition("=")
        if name == "end of trees":
            break
        if name == "Tree":
            sections.append({})
        sections[-1][name] = value
    else:
        raise Malformed("the file ends early: there is no 'end of trees'")
    head, *trees = sections
    announced = len(head["tree_sizes"].split()) if "tree_sizes" in head else len(trees)
    if announced != len(trees):
        raise Malformed(f"it announces {announced} trees and holds {len(trees)}")
    return head, trees


def _link(words: Sequence[str]) -> Link:
    """The objective's line: its name, then parameters like `sigmoid:1`."""
    name, *parameters = words or [""]
    if name in _SCALED:
        return _SCALED[name](_scale(parameters))
    if name not in _SIMPLE:
        known = ", ".join(sorted(OBJECTIVES))
        raise Malformed(f"the objective {name!r} is not supported; supported are {known}")
    if "sqrt" in parameters:  # it was trained on square roots
        return Link("square")
    return _SIMPLE[name]


def _scale(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition(":")
        if key == "sigmoid":
            try:
                return float(value)
            except ValueError:
                raise Malformed(f"the objective's sigmoid is not a number: {value!r}") from None
    return 1.0


def _numbered_tree(number: int, fields: Fields, targets: int) -> Tree:
    try:
        return _tree(fields, number % targets)
    except Malformed as error:
        raise Malformed(f"tree {number}: {error}") from None


def _tree(fields: Fields, target: int) -> Tree:
    if integer(fields, "is_linear", 0):
        raise Malformed("linear models in leaves (linear_tree) are not supported")
    weights = _row(fields, "leaf_value", _DOUBLE, integer(fields, "num_leaves"))
    leaves = len(weights)
    if leaves < 2:
        return _stump(weights, target)
    inner = leaves - 1
    kinds = _row(fields, "decision_type", _WHOLE, inner)
    is_category = (kinds & _CATEGORICAL) > 0
    splits = _row(fields, "threshold", _DOUBLE, inner)
    missing = (kinds >> _MISSING_SHIFT) & 3
    # A missing value that no direction was learned for counts as 0.
    without_direction = ~is_category & (missing != _MISSING_ZERO) & (missing != _MISSING_NAN)
    learned = ~is_category & ((kinds & _DEFAULT_LEFT) > 0)
    views = np.where(missing == _MISSING_ZERO, View.ZERO_IS_MISSING, View.PLAIN)
    return Tree(
        target=target,
        yes=_children(fields, "left_child", inner),
        no=_children(fields, "right_child", inner),
        feature=_padded(_row(fields, "split_feature", _WHOLE, inner), leaves),
        split=_padded(splits, leaves),
        missing_yes=_padded(np.where(without_direction, splits >= 0, learned), leaves),
        view=_padded(np.where(is_category, View.CATEGORY, views), leaves),
        members=_members(fields, splits, np.flatnonzero(is_category)),
        weight=np.concatenate([np.zeros(inner), weights]),
    )


def _stump(weights: Array, target: int) -> Tree:
    if len(weights) != 1:
        raise Malformed("it has no leaves")
    child, nothing = np.array([NO_CHILD]), np.zeros(1, _WHOLE)
    return Tree(
        target=target,
        yes=child,
        no=child,
        feature=nothing,
        split=np.zeros(1),
        missing_yes=np.zeros(1, np.bool_),
        view=nothing,
        weight=weights,
    )


def _children(fields: Fields, name: str, inner: int) -> Array:
    given = _row(fields, name, _WHOLE, inner)
    if ((given >= inner) | (given < -inner - 1)).any():
        raise Malformed(f"{name} leads to a node that is not there")
    children = np.where(given < 0, inner + ~given, given)
    return np.concatenate([children, np.full(inner + 1, NO_CHILD)])


def _members(fields: Fields, splits: Array, nodes: Array) -> dict[int, Array]:
    """The categories that each categorical node sends left; its threshold numbers its set."""
    if not nodes.size:
        return {}
    ends = _row(fields, "cat_boundaries", _WHOLE, integer(fields, "num_cat") + 1)
    words = _row(fields, "cat_threshold", np.dtype(np.uint32))
    if (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > len(words):
        raise Malformed("cat_boundaries does not fit cat_threshold")
    sets = splits[nodes]
    if not np.isin(sets, range(len(ends) - 1)).all():
        raise Malformed("a node refers to a set of categories that is not there")
    return {
        int(node): _bits(words[ends[number] : ends[number + 1]])
        for node, number in zip(nodes, sets.astype(_WHOLE), strict=True)
    }


def _bits(words: Array) -> Array:
    places = np.arange(_BITS, dtype=np.uint32)
    return np.flatnonzero((words[:, None] >> places) & 1)


def _row(fields: Fields, name: str, dtype: np.dtype[Any], count: int | None = None) -> Array:
    values: Mapping[str, Any] = {name: text(fields, name).split()}
    return numbers(values, name, dtype, count)


def _padded(inner: Array, leaves: int) -> Array:
    return np.concatenate([inner, np.zeros(leaves, inner.dtype)])
