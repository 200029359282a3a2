"""The models in this folder, with what their libraries predicted."""

import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from snoozeml.prepare.trees.forest import Forest
from snoozeml.prepare.trees.lightgbm_file import read_lightgbm
from snoozeml.prepare.trees.links import Link
from snoozeml.prepare.trees.xgboost_file import read_xgboost

Array = npt.NDArray[Any]

_FOLDER = Path(__file__).parent


class Golden(NamedTuple):
    """One model.

    Attributes:
        answers: arrays by the name of the output.
    """

    file: str
    model: bytes
    features: Array
    answers: dict[str, Array]

    def read(self) -> tuple[Forest, Link]:
        reader = read_lightgbm if self.file.endswith(".lgb.txt") else read_xgboost
        forest, link = reader(self.model)
        forest.check()
        return forest, link


@cache
def golden_cases() -> dict[str, Golden]:
    """All models by archive and name, such as `xgboost-3.2.0/reg-gamma`."""
    cases: dict[str, Golden] = {}
    for path in sorted(_FOLDER.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            for case in {name.partition("/")[0]: None for name in archive.namelist()}:
                cases[f"{path.stem}/{case}"] = _case(archive, f"{case}/")
    return cases


def _case(archive: zipfile.ZipFile, prefix: str) -> Golden:
    files = {
        name.removeprefix(prefix): archive.read(name)
        for name in archive.namelist()
        if name.startswith(prefix)
    }
    (model,) = (name for name in files if not name.endswith(".npy"))
    arrays = {
        name.removesuffix(".npy"): np.load(BytesIO(content))
        for name, content in files.items()
        if name != model
    }
    return Golden(model, files[model], arrays.pop("features"), arrays)
