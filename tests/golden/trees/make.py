"""Trains the small models in this folder, and writes down what their library predicts.

Run it with an interpreter that has the library: `python make.py xgboost` or `python make.py
lightgbm` writes LIBRARY-VERSION.zip, with a folder per case: the model as the library saves it, the
features, and the predictions. The features are drawn from thresholds of the model, their neighbours
among floats, and other values that are easily got wrong.
"""

import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_ROWS: Final = 240
_EDGE_ROWS: Final = 96
_NUMERIC: Final = 4
_CATEGORIES: Final = 40
_ODD: Final = (0.0, -0.0, 1e-35, -1e-35, 1e-36, -1e-36, 1e-45, 3.4e38, -3.4e38, np.nan)
_ODD_CATEGORIES: Final = (0, 31, 32, 33, 39, 64, 1000, np.nan)


class Case(NamedTuple):
    file: str
    model: bytes
    features: Array
    answers: dict[str, Array]
    """What must come out, by the name of the output."""


def data(seed: int = 0) -> tuple[Array, Array]:
    """Features with holes, of which the last one is a category, and a target."""
    random = np.random.default_rng(seed)
    numeric = random.normal(size=(_ROWS, _NUMERIC))
    category = random.integers(0, _CATEGORIES, (_ROWS, 1))
    target = numeric[:, 0] + numeric[:, 1] ** 2 + np.sin(category[:, 0]) + 0.1 * numeric[:, 2]
    features = np.concatenate([numeric, category], 1).astype(np.float32)
    features[:, 2][features[:, 2] < 0] = 0
    features[random.random(features.shape) < 0.1] = np.nan
    return features, target


def edges(splits: dict[int, list[float]], categorical: bool) -> Array:
    """Rows of values that are at, or right beside, what the model compares them with."""
    random = np.random.default_rng(1)
    columns = []
    for feature in range(_NUMERIC + 1):
        at = np.array(splits.get(feature, [0.0]), np.float32)
        pool = np.concatenate(
            [np.tile(at, 3), np.nextafter(at, np.float32(9)), np.nextafter(at, np.float32(-9))]
        )
        pool = np.concatenate([pool, np.array(_ODD, np.float32), random.normal(size=8)])
        if feature == _NUMERIC and categorical:
            pool = np.concatenate([np.arange(_CATEGORIES), np.array(_ODD_CATEGORIES)])
        columns.append(random.choice(pool.astype(np.float32), _EDGE_ROWS))
    return np.stack(columns, 1).astype(np.float32)


# XGBoost

_XGB_OBJECTIVES: Final = (
    "reg:squarederror", "reg:squaredlogerror", "reg:absoluteerror", "reg:pseudohubererror",
    "reg:quantileerror", "reg:logistic", "reg:gamma", "reg:tweedie", "count:poisson",
    "survival:cox", "survival:aft", "rank:pairwise", "rank:ndcg", "rank:map", "binary:logistic",
    "binary:logitraw", "binary:hinge", "multi:softmax", "multi:softprob",
)  # fmt: skip

_XGB_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "one-hot": {"max_cat_to_onehot": 100, "categorical": True, "tree_method": "hist"},
    "partition": {"max_cat_to_onehot": 1, "categorical": True, "tree_method": "hist"},
    "pruned": {
        "max_cat_to_onehot": 1,
        "categorical": True,
        "tree_method": "hist",
        "max_depth": 6,
        "pruned": 2.0,
    },
    "lossguide": {
        "grow_policy": "lossguide",
        "max_leaves": 24,
        "max_depth": 0,
        "tree_method": "hist",
    },
    "dart": {"booster": "dart", "rate_drop": 0.5, "rounds": 8},
    "dart-classes": {
        "booster": "dart",
        "rate_drop": 0.5,
        "rounds": 6,
        "objective": "multi:softmax",
    },
    "random-forest": {"num_parallel_tree": 4, "subsample": 0.5, "rounds": 1, "eta": 1.0},
    "random-forest-classes": {
        "num_parallel_tree": 3,
        "subsample": 0.5,
        "rounds": 2,
        "objective": "multi:softprob",
    },
    "leaves-only": {"gamma": 1e9, "objective": "reg:squarederror"},
    "targets": {"targets": 3},
    "labels": {"targets": 2, "objective": "binary:logistic"},
    "vectors": {"targets": 3, "multi_strategy": "multi_output_tree", "tree_method": "hist"},
    "long": {"rounds": 150, "max_depth": 2, "eta": 0.5, "base_score": 1.5},
}


def xgboost_cases() -> Iterator[tuple[str, Case]]:
    import xgboost

    version = int(xgboost.__version__.partition(".")[0])
    left_out = {"long"} if version < 3 else set()
    left_out |= {"vectors"} if version < 2 else set()
    for objective in _XGB_OBJECTIVES:
        name = objective.replace(":", "-")
        yield from _attempt(name, partial(_xgboost, {"objective": objective}, ".xgb.json"))
        based = {"objective": objective, "base_score": 0.3}
        yield from _attempt(f"{name}-base", partial(_xgboost, based, ".ubj"))
    for name, options in _XGB_OPTIONS.items():
        if name not in left_out:
            yield from _attempt(name, partial(_xgboost, options, ".xgb.json"))
            yield from _attempt(f"{name}-ubj", partial(_xgboost, options, ".ubj"))
    yield from _attempt("early-stopped", _xgboost_early_stopped)
    for classes in (0, 2, 3):
        yield from _attempt(f"sklearn-{classes}", partial(_xgboost_sklearn, classes))


def _xgb_target(objective: str, target: Array) -> Array:
    if objective.startswith("multi"):
        return np.digitize(target, [0, 1])
    if objective.startswith(("binary", "reg:logistic", "rank")):
        return (target > 0.5).astype(float)
    if objective in ("reg:gamma", "reg:tweedie", "count:poisson", "reg:squaredlogerror"):
        return np.ceil(np.abs(target))
    return np.abs(target) + 0.1 if objective.startswith("survival") else target


def _xgboost(options: dict[str, Any], suffix: str) -> Case:
    import xgboost

    fixed: dict[str, Any] = {"objective": "reg:squarederror", "max_depth": 3, "nthread": 1}
    options = fixed | options
    if options["objective"] == "reg:quantileerror":
        options["quantile_alpha"] = 0.4
    rounds, targets = options.pop("rounds", 4), options.pop("targets", 1)
    categorical, pruned = options.pop("categorical", False), options.pop("pruned", None)
    features, target = data()
    target = _xgb_target(options["objective"], target)
    if options["objective"].startswith("multi"):
        options["num_class"] = 3
    if targets > 1:
        target = np.stack([np.roll(target, shift) for shift in range(targets)], 1)

    def matrix(rows: Array, label: Array | None = None) -> Any:
        kinds = ["q"] * _NUMERIC + ["c" if categorical else "q"]
        more = {"feature_types": kinds, "enable_categorical": True} if categorical else {}
        return xgboost.DMatrix(rows, label=label, **more)

    trained_on = matrix(features, target)
    if options["objective"].startswith("rank"):
        trained_on.set_group([_ROWS // 4] * 4)
    if options["objective"] == "survival:aft":
        trained_on.set_float_info("label_lower_bound", target)
        trained_on.set_float_info("label_upper_bound", target * 2)
    booster = xgboost.train(options, trained_on, rounds)
    if pruned is not None:  # leaves that were categorical nodes once
        after = {"process_type": "update", "updater": "prune", "gamma": pruned}
        booster = xgboost.train(options | after, trained_on, rounds, xgb_model=booster)
    rows = edges(_xgb_splits(booster), categorical)
    answers = {"predictions": booster.predict(matrix(rows))}
    return Case(f"model{suffix}", _saved(booster, suffix), rows, answers)


def _xgboost_early_stopped() -> Case:
    """`Booster.predict` uses all trees."""
    import xgboost

    features, target = data()
    trained_on, held = xgboost.DMatrix(features, label=target), xgboost.DMatrix(*_half(3))
    options = {"max_depth": 3, "eta": 1.0, "nthread": 1}
    stop: dict[str, Any] = {"early_stopping_rounds": 4, "verbose_eval": False}
    booster = xgboost.train(options, trained_on, 40, evals=[(held, "held")], **stop)
    assert booster.best_iteration + 1 < booster.num_boosted_rounds()
    rows = edges(_xgb_splits(booster), categorical=False)
    answers = {"predictions": booster.predict(xgboost.DMatrix(rows))}
    return Case("model.xgb.json", _saved(booster, ".xgb.json"), rows, answers)


def _half(seed: int) -> tuple[Array, Array]:
    features, target = data(seed)
    return features[: _ROWS // 2], target[: _ROWS // 2]


def _xgboost_sklearn(classes: int) -> Case:
    """The interface of scikit-learn stops at the best iteration."""
    import xgboost

    features, target = data()
    kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    bins = [0.5] if classes == 2 else [0, 1]
    held, held_target = _half(3)
    if classes:
        target, held_target = np.digitize(target, bins), np.digitize(held_target, bins)
    model = kind(max_depth=3, n_estimators=40, learning_rate=1.0, early_stopping_rounds=4, n_jobs=1)
    model.fit(features, target, eval_set=[(held, held_target)], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    rows = edges(_xgb_splits(model.get_booster()), categorical=False)
    if not classes:
        answers = {"predictions": model.predict(rows)}
    else:
        chances = model.predict_proba(rows)
        predictions = chances[:, 1] if classes == 2 else chances
        answers = {"label": model.predict(rows), "probabilities": chances}
        answers["predictions"] = predictions
    return Case("model.ubj", _saved(model, ".ubj"), rows, answers)


def _xgb_splits(booster: Any) -> dict[int, list[float]]:
    splits: dict[int, list[float]] = {}

    def collect(node: dict[str, Any]) -> None:
        if "leaf" not in node:
            if not isinstance(node["split_condition"], list):
                feature = int(str(node["split"]).removeprefix("f"))
                splits.setdefault(feature, []).append(node["split_condition"])
            for child in node["children"]:
                collect(child)

    try:
        dumped = booster.get_dump(dump_format="json")
    except Exception:  # releases that cannot dump trees with vectors in their leaves
        return {}
    for tree in dumped:
        collect(json.loads(tree))
    return splits


# LightGBM

_LGB_OBJECTIVES: Final = (
    "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma",
    "tweedie", "binary", "multiclass", "multiclassova", "cross_entropy", "cross_entropy_lambda",
    "lambdarank", "rank_xendcg",
)  # fmt: skip

_LGB_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "square-root": {"reg_sqrt": True},
    "steep": {"objective": "binary", "sigmoid": 2.5},
    "steep-classes": {"objective": "multiclassova", "sigmoid": 0.7},
    "dart": {"boosting": "dart", "drop_rate": 0.5, "rounds": 8},
    "random-forest": {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1},
    "random-forest-classes": {
        "boosting": "rf",
        "bagging_fraction": 0.5,
        "bagging_freq": 1,
        "objective": "multiclass",
    },
    "random-forest-binary": {
        "boosting": "rf",
        "bagging_fraction": 0.5,
        "bagging_freq": 1,
        "objective": "binary",
    },
    "zero-is-missing": {"zero_as_missing": True},
    "nothing-is-missing": {"use_missing": False},
    "one-hot": {"categorical": True, "max_cat_to_onehot": 100},
    "partition": {"categorical": True, "max_cat_to_onehot": 1},
    "categories-zero-is-missing": {"categorical": True, "zero_as_missing": True},
    "categories-nothing-is-missing": {"categorical": True, "use_missing": False},
    "leaves-only": {"min_data_in_leaf": 10_000},
    "deep": {"num_leaves": 60, "min_data_in_leaf": 2, "rounds": 2},
    "early-stopped": {"early_stopping_round": 2, "learning_rate": 1.5, "rounds": 40},
}


def lightgbm_cases() -> Iterator[tuple[str, Case]]:
    for objective in _LGB_OBJECTIVES:
        yield from _attempt(objective, partial(_lightgbm, {"objective": objective}))
    for name, options in _LGB_OPTIONS.items():
        yield from _attempt(name, partial(_lightgbm, options))


def _lgb_target(objective: str, target: Array) -> Array:
    if objective.startswith("multiclass"):
        return np.digitize(target, [0, 1])
    if objective in ("binary", "lambdarank", "rank_xendcg") or objective.startswith("cross"):
        return (target > 0.5).astype(float)
    positive = objective in ("poisson", "gamma", "tweedie")
    return np.ceil(np.abs(target)) if positive else target


def _lightgbm(options: dict[str, Any]) -> Case:
    import lightgbm

    fixed: dict[str, Any] = {
        "objective": "regression",
        "num_leaves": 6,
        "min_data_in_leaf": 8,
        "min_data_per_group": 5,
        "cat_smooth": 1.0,
        "num_threads": 1,
        "verbose": -1,
    }
    options = fixed | options
    rounds, categorical = options.pop("rounds", 4), options.pop("categorical", False)
    features, target = data()
    target = _lgb_target(options["objective"], target)
    if options["objective"].startswith("multiclass"):
        options["num_class"] = 3
    columns: dict[str, Any] = {"categorical_feature": [_NUMERIC]} if categorical else {}
    group = [_ROWS // 4] * 4 if "rank" in options["objective"] else None
    trained_on = lightgbm.Dataset(features, label=target, group=group, **columns)
    held = [trained_on.create_valid(*_half(3))] if "early_stopping_round" in options else None
    booster = lightgbm.train(options, trained_on, rounds, valid_sets=held)
    model = booster.model_to_string().encode()
    rows = edges(_lgb_splits(model.decode()), categorical)
    return Case("model.lgb.txt", model, rows, {"predictions": booster.predict(rows)})


def _lgb_splits(model: str) -> dict[int, list[float]]:
    splits: dict[int, list[float]] = {}
    features: list[int] = []
    for line in model.splitlines():
        name, _, values = line.partition("=")
        if name == "split_feature":
            features = [int(value) for value in values.split()]
        if name == "threshold":
            for feature, value in zip(features, values.split(), strict=True):
                splits.setdefault(feature, []).append(np.clip(float(value), -3e38, 3e38))
    return splits


# Files


def _attempt(name: str, make: Callable[[], Case]) -> Iterator[tuple[str, Case]]:
    try:
        case = make()
    except Exception as error:  # what a release does not have yet
        print(f"{name}: {str(error).strip().splitlines()[0][:120]}", file=sys.stderr)
    else:
        yield name, case


def _saved(model: Any, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model.{suffix.rpartition('.')[2]}")
        model.save_model(path)
        return path.read_bytes()


def _npy(array: Array) -> bytes:
    content = BytesIO()
    np.save(content, array)
    return content.getvalue()


def main() -> None:
    library = sys.argv[1]
    cases = {"xgboost": xgboost_cases, "lightgbm": lightgbm_cases}[library]
    version = __import__(library).__version__
    path = Path(__file__).with_name(f"{library}-{version}.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, case in cases():
            arrays = {"features": case.features, **case.answers}
            files = {f"{array}.npy": _npy(values) for array, values in arrays.items()}
            for file, content in {case.file: case.model, **files}.items():
                entry = zipfile.ZipInfo(f"{name}/{file}")  # with the same date in every run
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)


if __name__ == "__main__":
    main()
