"""XGBoost's models, from JSON or UBJSON; releases 1.0 to 3.x write the same form.

Form: https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from snoozeml.prepare.trees import ubjson
from snoozeml.prepare.trees.fields import Fields, integer, list_of, numbers, part, text
from snoozeml.prepare.trees.forest import (
    NO_CHILD,
    Array,
    Forest,
    Malformed,
    Tree,
    View,
    check_targets,
)
from snoozeml.prepare.trees.links import Link, LinkName

_CATEGORICAL: Final = 1  # in `split_type`
_FLOAT: Final = np.dtype(np.float32)

_REGRESSION: Final = Link()
_LOGISTIC: Final = Link("sigmoid")
_POSITIVE: Final = Link("exp")

OBJECTIVES: Final[dict[str, Link]] = {
    "reg:squarederror": _REGRESSION,
    "reg:linear": _REGRESSION,  # what releases before 1.0 called it
    "reg:squaredlogerror": _REGRESSION,
    "reg:absoluteerror": _REGRESSION,
    "reg:pseudohubererror": _REGRESSION,
    "reg:quantileerror": _REGRESSION,
    "reg:logistic": _LOGISTIC,
    "reg:gamma": _POSITIVE,
    "reg:tweedie": _POSITIVE,
    "count:poisson": _POSITIVE,
    "survival:cox": _POSITIVE,
    "survival:aft": _POSITIVE,
    "rank:pairwise": _REGRESSION,
    "rank:ndcg": _REGRESSION,
    "rank:map": _REGRESSION,
    "binary:logistic": Link("sigmoid", "binary"),
    "binary:logitraw": Link("raw_logit", "binary"),
    "binary:hinge": Link("hinge", "binary"),
    "multi:softprob": Link("softmax", "multiclass"),
    "multi:softmax": Link("softmax_label", "multiclass"),
}


def read_xgboost(content: bytes) -> tuple[Forest, Link]:
    """Read a model.

    Raises:
        Malformed: it is damaged, or of a kind that is not supported.
    """
    document = _document(content)
    learner = part(document, "learner")
    link = _link(text(part(learner, "objective"), "name"))
    model, weights = _trees_of(part(learner, "gradient_booster"))
    parameters = part(learner, "learner_model_param")
    targets = max(integer(parameters, "num_class", 0), integer(parameters, "num_target", 1), 1)
    check_targets(targets)
    trees = _trees(model, _kept(model, learner, targets))
    forest = Forest(
        trees=trees if weights is None else _weighted(trees, weights),
        features=integer(parameters, "num_feature"),
        targets=targets,
        comparison="<",
        base=_base(text(parameters, "base_score"), _link_of_base(document, link), targets),
        dtype=_FLOAT,
    )
    return forest, link


def _document(content: bytes) -> Fields:
    if content[:2] in (b"{L", b"{l", b"{i", b"{U", b"{I"):
        document = ubjson.decode(content)
    else:
        document = _parse_json(content)
    if not isinstance(document, dict):
        raise Malformed("it is not an XGBoost model: its JSON is no object")
    return document


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError:
        raise Malformed("its JSON is nested too deeply") from None
    except ValueError as error:
        where = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        raise Malformed(
            f"it is neither JSON nor UBJSON, or only part of one{where}; models in XGBoost's old"
            " binary form must be saved again: Booster.save_model('model.json')"
        ) from None


def _link(objective: str) -> Link:
    if objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise Malformed(f"the objective {objective!r} is not supported; supported are {known}")
    return OBJECTIVES[objective]


def _trees_of(booster: Fields) -> tuple[Fields, Array | None]:
    """The trees' part of the document, and what DART multiplies each tree with."""
    name = text(booster, "name")
    if name == "dart":
        return part(part(booster, "gbtree"), "model"), numbers(booster, "weight_drop", _FLOAT)
    if name != "gbtree":
        raise Malformed(f"the booster {name!r} is not supported; supported are gbtree and dart")
    return part(booster, "model"), None


def _kept(model: Fields, learner: Fields, targets: int) -> int:
    """How many trees predict.

    scikit-learn's interface stops at the best iteration of early stopping, and marks its files;
    `Booster.predict` uses all trees, whatever the file says about the best iteration.
    """
    count = len(list_of(model, "trees"))
    attributes = part(learner, "attributes")
    if "scikit_learn" not in attributes or "best_iteration" not in attributes:
        return count
    rounds = integer(attributes, "best_iteration") + 1
    if "iteration_indptr" in model:
        ends = numbers(model, "iteration_indptr", np.dtype(np.int64))
        kept = int(ends[rounds]) if 0 < rounds < len(ends) else 0
    else:
        parameters = part(model, "gbtree_model_param")
        kept = rounds * targets * max(integer(parameters, "num_parallel_tree", 1), 1)
    if not 0 < kept <= count:
        raise Malformed(f"its best iteration {rounds - 1} lies beyond its {count} trees")
    return kept


def _link_of_base(document: Fields, link: Link) -> LinkName:
    """The link function that `base_score` has gone through."""
    version = numbers(document, "version", np.dtype(np.int64)).tolist()
    return "sigmoid" if link.name == "raw_logit" and version < [1, 3] else link.name


def _base(score: str, link: LinkName, targets: int) -> Array:
    """`base_score`, a number or a list of them in a string, as what the sums start from."""
    try:
        scores = np.array(json.loads(score), dtype=_FLOAT).ravel()
    except (ValueError, TypeError, RecursionError):
        raise Malformed(f"base_score is not a number: {score[:40]!r}") from None
    if scores.size not in (1, targets):
        raise Malformed(f"base_score has {scores.size} numbers for {targets} outputs")
    with np.errstate(all="ignore"):  # a base of 0 is minus infinity to a logarithm, as it should be
        if link == "sigmoid":
            scores = -np.log(1 / scores - 1)
        elif link == "exp":
            scores = np.log(scores)
    return np.broadcast_to(scores, targets)


def _trees(model: Fields, count: int) -> list[Tree]:
    found = []
    groups = numbers(model, "tree_info", np.dtype(np.int64))
    trees = list_of(model, "trees")
    if len(groups) != len(trees):
        raise Malformed(f"tree_info has {len(groups)} entries for {len(trees)} trees")
    for number, (tree, group) in enumerate(zip(trees[:count], groups.tolist(), strict=False)):
        try:
            found.append(_tree(tree, group))
        except Malformed as error:
            raise Malformed(f"tree {number}: {error}") from None
    return found


def _tree(tree: Fields, group: int) -> Tree:
    left = numbers(tree, "left_children", np.dtype(np.int64))
    count = len(left)
    if not count:
        raise Malformed("it has no nodes")
    right = numbers(tree, "right_children", np.dtype(np.int64), count)
    default_left = numbers(tree, "default_left", np.dtype(np.bool_), count)
    conditions = numbers(tree, "split_conditions", _FLOAT, count)
    # Pruning leaves those of nodes behind that have become leaves.
    members = {n: found for n, found in _members(tree, count).items() if left[n] != NO_CHILD}
    in_set = np.zeros(count, np.bool_)  # rows whose category is in the set go right
    in_set[list(members)] = True
    return Tree(
        target=group,
        yes=np.where(in_set, right, left),
        no=np.where(left == NO_CHILD, NO_CHILD, np.where(in_set, left, right)),
        feature=numbers(tree, "split_indices", np.dtype(np.int64), count),
        split=conditions,
        missing_yes=default_left != in_set,
        weight=_weights(tree, left, right, conditions),
        view=np.where(in_set, View.CATEGORY, View.PLAIN),
        members=members,
    )


def _weights(tree: Fields, left: Array, right: Array, conditions: Array) -> Array:
    """What leaves add: in the place of a threshold, or in vectors of their own.

    Those are numbered by what stands in the place of a leaf's right child.
    """
    size = integer(part(tree, "tree_param"), "size_leaf_vector", 1)
    if size <= 1:
        return conditions
    count = len(conditions)
    if "leaf_weights" not in tree:  # before 3.1 every node had a vector
        return numbers(tree, "base_weights", _FLOAT, count * size).reshape(count, size)
    vectors = numbers(tree, "leaf_weights", _FLOAT)
    leaves = np.flatnonzero(left == NO_CHILD)
    if len(vectors) != len(leaves) * size or not np.isin(right[leaves], range(len(leaves))).all():
        raise Malformed(f"leaf_weights does not hold {size} numbers for each leaf")
    weights = np.zeros((count, size), _FLOAT)
    weights[leaves] = vectors.reshape(-1, size)[right[leaves]]
    return weights


def _members(tree: Fields, count: int) -> dict[int, Array]:
    """The categories that each categorical node sends right."""
    if "split_type" not in tree:  # before 1.3
        return {}
    whole = np.dtype(np.int64)
    kinds = numbers(tree, "split_type", whole, count)
    nodes, starts, sizes, categories = (
        numbers(tree, name, whole)
        for name in ("categories_nodes", "categories_segments", "categories_sizes", "categories")
    )
    if not len(nodes) == len(starts) == len(sizes):
        raise Malformed("its lists of categories do not match")
    if ((starts < 0) | (sizes < 0) | (starts > len(categories) - sizes)).any():
        raise Malformed("it refers to categories that are not there")
    found = {
        int(node): categories[start : start + size]
        for node, start, size in zip(nodes, starts, sizes, strict=True)
    }
    if set(found) != set(np.flatnonzero(kinds == _CATEGORICAL).tolist()):
        raise Malformed("its categorical nodes and its lists of categories do not match")
    return found


def _weighted(trees: Sequence[Tree], weights: Array) -> list[Tree]:
    """Trees with their leaves multiplied as DART does, each product rounded as its own are."""
    if len(weights) < len(trees):
        raise Malformed(f"weight_drop has {len(weights)} entries for {len(trees)} trees")
    return [
        replace(tree, weight=tree.weight * weight)
        for tree, weight in zip(trees, weights, strict=False)
    ]
