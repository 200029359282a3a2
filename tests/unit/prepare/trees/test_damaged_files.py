"""Damaged and unsupported files are named for what is wrong with them, and never hang or crash."""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from golden.trees.cases import golden_cases
from snoozeml.prepare.trees import ubjson
from snoozeml.prepare.trees.forest import DEEPEST, Malformed
from snoozeml.prepare.trees.graph import tree_graph
from snoozeml.prepare.trees.lightgbm_file import read_lightgbm
from snoozeml.prepare.trees.xgboost_file import read_xgboost

Json = Any

XGBOOST = golden_cases()["xgboost-3.2.0/reg-squarederror"].model
CATEGORIES = golden_cases()["xgboost-3.2.0/partition"].model
VECTORS = golden_cases()["xgboost-3.2.0/vectors"].model
DART = golden_cases()["xgboost-3.2.0/dart"].model
STOPPED = golden_cases()["xgboost-3.2.0/sklearn-0"].model
UBJ = golden_cases()["xgboost-3.2.0/reg-squarederror-base"].model
LIGHTGBM = golden_cases()["lightgbm-4.7.0/regression"].model.decode()
LIGHTGBM_CATEGORIES = golden_cases()["lightgbm-4.7.0/partition"].model.decode()


def learner_of(document: Json) -> Json:
    return document["learner"]


def parameters_of(document: Json) -> Json:
    return document["learner"]["learner_model_param"]


def model_of(document: Json) -> Json:
    booster = document["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]


def tree_of(document: Json) -> Json:
    return model_of(document)["trees"][0]


def put(find: Callable[[Json], Json], *path: Any) -> Callable[[Json], None]:
    """Sets a value: the path's last item, at the place that the others name."""

    def damage(document: Json) -> None:
        place = find(document)
        for key in path[:-2]:
            place = place[key]
        place[path[-2]] = path[-1]

    return damage


def without(find: Callable[[Json], Json], name: str) -> Callable[[Json], None]:
    return lambda document: find(document).pop(name)


def shorten(name: str) -> Callable[[Json], None]:
    return lambda document: tree_of(document)[name].pop()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (put(parameters_of, "num_class", str(2**63)), "outputs, and 1048576 is the limit"),
        (put(tree_of, "left_children", 1, 0), "tree 0: some node leads back to the root"),
        (put(tree_of, "left_children", 1, 2), "tree 0: more than one way leads to node 2"),
        (put(tree_of, "left_children", 1, 1), "tree 0: more than one way leads to node 1"),
        (put(tree_of, "left_children", 1, 99), r"node 1 leads to node 99, and there are \d+"),
        (put(tree_of, "right_children", 1, -7), "node 1 leads to node -7"),
        (put(tree_of, "left_children", []), "tree 0: it has no nodes"),
        (put(tree_of, "left_children", {}), "tree 0: left_children is not a list"),
        (put(tree_of, "left_children", 0, "x"), "left_children holds something that is no number"),
        (put(tree_of, "left_children", 0, [1]), "left_children"),
        (put(tree_of, "split_conditions", 0, None), "node 0 compares with NaN"),
        (put(tree_of, "split_conditions", 0, float("nan")), "node 0 compares with NaN"),
        (put(tree_of, "split_indices", 0, 77), "node 0 tests feature 77, and there are 5"),
        (put(tree_of, "split_indices", 0, -1), "node 0 tests feature -1"),
        (put(tree_of, "split_indices", 0, 2**70), "split_indices holds something"),
        (put(tree_of, "tree_param", "size_leaf_vector", "9"), "leaf_weights|base_weights"),
        (put(tree_of, "tree_param", "size_leaf_vector", "1" * 30), "weights"),
        (shorten("split_conditions"), r"split_conditions has \d+ entries, and there must be \d+"),
        (shorten("default_left"), "default_left has"),
        (without(tree_of, "right_children"), "tree 0: right_children is missing"),
        (put(model_of, "tree_info", []), "tree_info has 0 entries for 4 trees"),
        (put(model_of, "tree_info", 0, 3), "tree 0: it adds to output 3, and there are 1"),
        (put(model_of, "trees", 0, 7), "tree 0: an object"),
        (lambda d: model_of(d).update(trees=[], tree_info=[]), "the model holds no trees"),
        (put(parameters_of, "num_feature", "-4"), "claims to take -4 features"),
        (put(parameters_of, "num_feature", "10000000000"), "claims to take 10000000000 features"),
        (put(parameters_of, "num_feature", "many"), "num_feature is not a whole number: 'many'"),
        (put(parameters_of, "num_class", "10000000000"), "10000000000 outputs"),
        (put(parameters_of, "base_score", "half"), "base_score is not a number: 'half'"),
        (put(parameters_of, "base_score", "[1,2]"), "base_score has 2 numbers for 1 outputs"),
        (put(learner_of, "objective", "name", "reg:magic"), "objective 'reg:magic' is not support"),
        (put(learner_of, "gradient_booster", "name", "gblinear"), "booster 'gblinear' is not supp"),
        (put(learner_of, "attributes", []), "attributes is not an object"),
        (without(learner_of, "objective"), "objective is missing"),
        (lambda document: document.clear(), "learner is missing"),
    ],
)
def test_an_xgboost_model_says_what_is_wrong_with_it(
    damage: Callable[[Json], Any], message: str
) -> None:
    document = json.loads(XGBOOST)
    damage(document)
    with pytest.raises(Malformed, match=message):
        read_and_check(read_xgboost, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("model", "damage", "message"),
    [
        (CATEGORIES, put(tree_of, "categories", []), "categories that are not there"),
        (CATEGORIES, put(tree_of, "categories_sizes", 0, -1), "categories that are not there"),
        (CATEGORIES, put(tree_of, "categories_sizes", 0, 2**62), "categories that are not there"),
        (CATEGORIES, put(tree_of, "categories_nodes", 0, 500), "do not match"),
        (CATEGORIES, put(tree_of, "categories_nodes", []), "do not match"),
        (VECTORS, put(tree_of, "leaf_weights", []), "leaf_weights does not hold 3 numbers"),
        (VECTORS, put(tree_of, "right_children", -1, 99), "leaf_weights does not hold 3 numbers"),
        (VECTORS, put(tree_of, "tree_param", "size_leaf_vector", "2"), "leaf_weights does not"),
    ],
)
def test_so_do_models_with_categories_and_vectors(
    model: bytes, damage: Callable[[Json], None], message: str
) -> None:
    document = json.loads(model)
    damage(document)
    with pytest.raises(Malformed, match=f"tree 0: .*{message}"):
        read_and_check(read_xgboost, json.dumps(document).encode())


@pytest.mark.parametrize("node", [0, 5])
def test_a_leaf_that_was_a_categorical_node_once_tests_nothing(node: int) -> None:
    """Pruning leaves the node's categories behind."""
    document = json.loads(CATEGORIES)
    tree = tree_of(document)
    tree["left_children"][node] = tree["right_children"][node] = -1
    forest, link = read_xgboost(json.dumps(document).encode())
    forest.check()
    assert forest.trees[0].members.keys() == {0, 5} - {node}
    tree_graph(forest, link)


def test_dart_needs_a_weight_for_each_tree() -> None:
    document = json.loads(DART)
    document["learner"]["gradient_booster"]["weight_drop"].pop()
    with pytest.raises(Malformed, match="weight_drop has 7 entries for 8 trees"):
        read_xgboost(json.dumps(document).encode())


@pytest.mark.parametrize("best", ["-2", "4000", "often"])
def test_a_best_iteration_must_be_one_of_them(best: str) -> None:
    document = ubjson.decode(STOPPED)
    document["learner"]["attributes"]["best_iteration"] = best
    with pytest.raises(Malformed, match=r"best.iteration"):
        read_xgboost(json.dumps(document, default=lambda array: array.tolist()).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither JSON nor UBJSON"),
        (b"hello", "neither JSON nor UBJSON"),
        (b"binf\x00\x00\x00\x00", "save_model"),
        (b"[1, 2]", "its JSON is no object"),
        (XGBOOST[:-1], "only part of one"),
        (XGBOOST[:1000], "only part of one"),
        (b'{"learner": ' + b"[" * 200_000, "nested too deeply"),
        (b'{"learner": ' + b"9" * 100_000 + b"}", "neither JSON|not an object"),
        (UBJ[:-1], "ends early"),
        (UBJ[:1000], "ends early"),
        (UBJ + b"!", "something follows the end"),
        (b"{L" + struct.pack(">q", 10_000_000_000) + b"learner", "announces 10000000000, 7 remain"),
        (b"{L" + struct.pack(">q", -5) + b"learner", "announces -5"),
        (b"{i\x01x[$d#L" + struct.pack(">q", 2**60), "ends early"),
        (b"{i\x01x[#L" + struct.pack(">q", 10_000_000_000), "ends early"),
        (b"{i\x01x" + b"[" * 100_000, "nests more than"),
        (b"{i\x01xQ}", "mean nothing here"),
        (b"{i\x01x[$Q#i\x01", "mean nothing here"),
        (b"{i\x01\xffZ}", "not UTF-8"),
        (b"{i\x01xZ}", "learner is missing"),
    ],
)
def test_what_is_no_xgboost_model_says_so(content: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        read_xgboost(content)


@pytest.mark.parametrize("model", [XGBOOST, UBJ])
def test_an_xgboost_model_cut_off_anywhere_is_refused(model: bytes) -> None:
    for end in range(0, len(model), 97):
        with pytest.raises(Malformed):
            read_xgboost(model[:end])


def replaced(text: str, old: str, new: str) -> bytes:
    assert old in text
    return text.replace(old, new, 1).encode()


def line_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"{name}="))


def first_number(line: str, number: str) -> str:
    """A line of numbers with another one in the first place."""
    name, _, rest = line.partition("=")
    return f"{name}={' '.join([number, *rest.split()[1:]])}"


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("left_child", "0", "tree 0: some node leads back to the root"),
        ("left_child", "4000", "left_child leads to a node that is not there"),
        ("left_child", "-4000", "left_child leads to a node that is not there"),
        ("right_child", "2", "tree 0: more than one way leads to node"),
        ("threshold", "hello", "threshold holds something that is no number"),
        ("threshold", "nan", "tree 0: node 0 compares with NaN"),
        ("split_feature", "4444", "node 0 tests feature 4444"),
        ("num_leaves", "900000000", "leaf_value has 6 entries, and there must be 900000000"),
        ("num_leaves", "-9", "leaf_value has 6 entries, and there must be -9"),
        ("num_leaves", "x", "num_leaves is not a whole number"),
        ("leaf_value", "", "leaf_value has 5 entries"),
        ("decision_type", "", "decision_type has 4 entries"),
        ("objective", "magic", "the objective 'magic' is not supported"),
        ("num_tree_per_iteration", "0", "num_tree_per_iteration is 0"),
        ("num_tree_per_iteration", "10000000000", "10000000000 outputs"),
        ("num_tree_per_iteration", "9" * 30, "9 outputs, and 1048576 is the limit"),
        ("max_feature_idx", "10000000000", "claims to take 10000000001 features"),
        ("max_feature_idx", "-1", "claims to take 0 features"),
        ("tree_sizes", "1 1 1 1 1 1", "announces 9 trees and holds 4"),
        ("is_linear", "1", "linear_tree"),
    ],
)
def test_a_lightgbm_model_says_what_is_wrong_with_it(name: str, number: str, message: str) -> None:
    line = line_of(LIGHTGBM, name)
    damaged = replaced(LIGHTGBM, f"\n{line}\n", f"\n{first_number(line, number)}\n")
    with pytest.raises(Malformed, match=message):
        read_and_check(read_lightgbm, damaged)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("cat_boundaries", "-3", "cat_boundaries does not fit"),
        ("cat_boundaries", "500", "cat_boundaries does not fit"),
        ("cat_threshold", "-1", "cat_threshold holds something"),
        ("num_cat", "77", "cat_boundaries has"),
        ("num_cat", "-1", "cat_boundaries has"),
    ],
)
def test_so_do_its_categories(name: str, number: str, message: str) -> None:
    line = line_of(LIGHTGBM_CATEGORIES, name)
    damaged = replaced(LIGHTGBM_CATEGORIES, line, first_number(line, number))
    with pytest.raises(Malformed, match=message):
        read_and_check(read_lightgbm, damaged)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "its first line is not 'tree'"),
        (b"hello", "its first line is not 'tree'"),
        (b"\xff\x00tree", "its first line is not 'tree'"),
        (b"tree\nversion=v4\n", "ends early"),
        (b"tree\nend of trees\n", "max_feature_idx is missing"),
        (b"tree\nmax_feature_idx=3\nend of trees\n", "holds no trees"),
        (b"tree\nmax_feature_idx=3\nTree=0\nend of trees\n", "tree 0: num_leaves is missing"),
        (b"tree\nTree=0\nnum_leaves=0\nleaf_value=\nend of trees\n", "tree 0: it has no leaves"),
    ],
)
def test_what_is_no_lightgbm_model_says_so(content: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        read_and_check(read_lightgbm, content)


def test_a_lightgbm_model_cut_off_anywhere_is_refused() -> None:
    trees_end = LIGHTGBM.index("end of trees") + len("end of trees")
    for end in range(0, trees_end, 97):
        with pytest.raises(Malformed):
            read_lightgbm(LIGHTGBM[:end].encode())


def chain(levels: int) -> bytes:
    """An XGBoost model whose only tree goes right `levels` times."""
    document = json.loads(XGBOOST)
    count = 2 * levels + 1
    left = [node + 1 if node % 2 == 0 else -1 for node in range(count - 1)] + [-1]
    tree = tree_of(document)
    tree.update(
        left_children=left,
        right_children=[node + 1 if node > 0 else -1 for node in left],
        default_left=[0] * count,
        split_conditions=[0.5] * count,
        split_indices=[0] * count,
        split_type=[0] * count,
    )
    model_of(document).update(trees=[tree], tree_info=[0])
    return json.dumps(document).encode()


def test_a_tree_may_be_so_deep_and_no_deeper() -> None:
    read_and_check(read_xgboost, chain(DEEPEST - 1))
    with pytest.raises(Malformed, match=f"tree 0: it is more than {DEEPEST} levels deep"):
        read_and_check(read_xgboost, chain(100_000))


def read_and_check(reader: Callable[[bytes], tuple[Any, Any]], content: bytes) -> None:
    forest, _ = reader(content)
    forest.check()
