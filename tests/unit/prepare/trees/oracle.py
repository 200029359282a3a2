"""Forests evaluated node by node in plain Python: slow, and easily seen to be right."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from snoozeml.prepare.trees.forest import Forest, Tree, View
from snoozeml.prepare.trees.graph import tree_graph
from snoozeml.prepare.trees.links import Link

Array = npt.NDArray[Any]

TINY = float(np.float32(1e-35))


def run(forest: Forest, link: Link, features: Array) -> dict[str, Array]:
    """What the graph of a forest answers, in the engine and with the options that serve it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        tree_graph(forest, link).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"features": features}), strict=True))


def predict(forest: Forest, link: Link, features: Array) -> Array:
    """`predictions`: [rows], or [rows, targets]."""
    values = np.array([_row(forest, link, row) for row in features], forest.dtype)
    return values[:, 0] if values.shape[1] == 1 else values


def _row(forest: Forest, link: Link, row: Array) -> list[float]:
    sums = list(np.array(forest.base, forest.dtype))
    for tree in forest.trees:
        weight = tree.weight[_leaf(forest, tree, row)]
        if weight.ndim:
            sums = [total + part for total, part in zip(sums, weight, strict=True)]
        else:
            sums[tree.target] = sums[tree.target] + weight
    return _linked([float(total / forest.dtype.type(forest.divisor)) for total in sums], link)


def _leaf(forest: Forest, tree: Tree, row: Array) -> int:
    node = 0
    while tree.yes[node] >= 0:
        node = int((tree.yes if _passes(forest, tree, node, row) else tree.no)[node])
    return node


def _passes(forest: Forest, tree: Tree, node: int, row: Array) -> bool:
    value = float(row[tree.feature[node]])
    is_tiny = forest.tiny_is_zero and abs(value) <= TINY
    if math.isnan(value) or (is_tiny and tree.view[node] == View.ZERO_IS_MISSING):
        return bool(tree.missing_yes[node])
    if tree.view[node] == View.CATEGORY:
        if not math.isfinite(value):
            return False
        whole = math.floor(value) if forest.category_rounding == "floor" else math.trunc(value)
        return whole in tree.members[node].tolist()
    compared, split = 0.0 if is_tiny else value, float(tree.split[node])
    return compared < split if forest.comparison == "<" else compared <= split


def _linked(sums: list[float], link: Link) -> list[float]:
    match link.name:
        case "exp":
            return [_exp(total) for total in sums]
        case "sigmoid":
            return [1 / (1 + _exp(-link.scale * total)) for total in sums]
        case "hinge":
            return [float(total > 0) for total in sums]
        case "square":
            return [math.copysign(total * total, total) for total in sums]
        case "log1p_exp":
            return [max(total, 0) + math.log1p(math.exp(-abs(total))) for total in sums]
        case "softmax":
            powers = [math.exp(total - max(sums)) for total in sums]
            return [power / sum(powers) for power in powers]
        case "softmax_label":
            return [float(sums.index(max(sums)))]
        case _:
            return sums


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
