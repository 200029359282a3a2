"""The parsers of model files, up to the graph that the engine is given."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import strategies as st
from onnx import ModelProto

import models
from fuzz.mutations import Json, as_json, as_ubjson, changes, damaged_json
from fuzz.subject import Subject, binary, document, json_text, protobuf, text, weighted
from golden.safetensors.compare import HERE
from golden.trees.cases import golden_cases
from snoozeml.core.manifest import read_manifest
from snoozeml.errors import SnoozeError
from snoozeml.prepare.safetensors.checkpoint import read_checkpoint, weight_files
from snoozeml.prepare.safetensors.model import build
from snoozeml.prepare.safetensors.sentence import read_modules
from snoozeml.prepare.source import read_source
from snoozeml.prepare.trees.forest import Forest, Malformed
from snoozeml.prepare.trees.graph import tree_graph
from snoozeml.prepare.trees.lightgbm_file import read_lightgbm
from snoozeml.prepare.trees.links import Link
from snoozeml.prepare.trees.xgboost_file import read_xgboost


def _seeds(*cases: str) -> list[bytes]:
    return [golden_cases()[case].model for case in cases]


_XGBOOST: Final = _seeds(
    "xgboost-3.2.0/leaves-only", "xgboost-3.2.0/binary-hinge", "xgboost-3.2.0/partition",
    "xgboost-3.2.0/dart", "xgboost-3.2.0/vectors",
)  # fmt: skip
_UBJSON: Final = _seeds("xgboost-3.2.0/leaves-only-ubj", "xgboost-3.2.0/reg-gamma-base")
_LIGHTGBM: Final = _seeds("lightgbm-4.7.0/leaves-only", "lightgbm-4.7.0/partition")


def _growing(
    reader: Callable[[bytes], tuple[Forest, Link]],
) -> Callable[[bytes, Path], None]:
    """Read trees as prepare does, to the graph that the engine is given."""

    def read(content: bytes, _: Path) -> None:
        forest, link = reader(content)
        forest.check()
        tree_graph(forest, link).ByteSize()

    return read


def _header_of(file: Path) -> tuple[Json, bytes]:
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _safetensors(header: Json, data: bytes) -> bytes:
    text = as_json(header)
    return len(text).to_bytes(8, "little") + text + data


_SMALL: Final = HERE / "mlp"
_HEADER, _DATA = _header_of(_SMALL / "model.safetensors")
_HEADERS: Final = weighted(
    (4, document(_HEADER).map(lambda header: _safetensors(header, _DATA))),
    (1, binary((_SMALL / "model.safetensors").read_bytes())),
)


def _read_header(content: bytes, folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(content)
    for tensor in read_checkpoint([file]).values():
        tensor.read()


class _Checkpoint(NamedTuple):
    folder: str
    config: Json
    header: Json
    modules: Json


def _checkpoint(name: str) -> _Checkpoint:
    folder = HERE / name
    listed = folder / "modules.json"
    modules = json.loads(listed.read_bytes()) if listed.exists() else None
    header, _ = _header_of(folder / "model.safetensors")
    return _Checkpoint(name, json.loads((folder / "config.json").read_bytes()), header, modules)


_CHECKPOINTS: Final = [
    _checkpoint(name)
    for name in (
        "mlp", "bert", "roberta", "distilbert", "electra", "albert", "mpnet", "deberta-v2",
        "modernbert", "nomic", "gte", "jina", "vit", "dinov2", "dinov3", "clip", "siglip",
        "sentence-mean", "sentence-dense",
    )
    if (HERE / name).exists()
]  # fmt: skip


@st.composite
def _damaged_checkpoints(draw: st.DrawFn) -> _Checkpoint:
    one = draw(st.sampled_from(_CHECKPOINTS))
    match draw(st.integers(0, 5)):
        case 0:
            return one._replace(header=damaged_json(one.header, draw(changes)))
        case 1 if one.modules is not None:
            return one._replace(modules=damaged_json(one.modules, draw(changes)))
        case _:
            return one._replace(config=damaged_json(one.config, draw(changes)))


def _build(checkpoint: _Checkpoint, folder: Path) -> None:
    """Read a checkpoint as prepare does, to the graph that the engine is given."""
    source = HERE / checkpoint.folder
    here = folder / checkpoint.folder
    if not here.exists():
        here.mkdir()
        for path in source.iterdir():
            if path.is_dir():
                (here / path.name).symlink_to(path)
    (here / "config.json").write_bytes(as_json(checkpoint.config))
    _, data = _header_of(source / "model.safetensors")
    (here / "model.safetensors").write_bytes(_safetensors(checkpoint.header, data))
    if checkpoint.modules is not None:
        (here / "modules.json").write_bytes(as_json(checkpoint.modules))
    build(here, weight_files(here), read_modules(here))


def _onnx_models() -> list[ModelProto]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        files = (
            models.identity_model(folder / "a.onnx"),
            models.linear_model(folder / "b.onnx"),
            models.external_data_model(folder / "c.onnx"),
        )
        return [ModelProto.FromString(file.read_bytes()) for file in files]


_ONNX: Final = protobuf(*_onnx_models())


def _read_onnx(content: bytes, folder: Path) -> None:
    file = folder / "model.onnx"
    file.write_bytes(content)
    (folder / "data").write_bytes(bytes(1000))
    read_source(file)


_MANIFEST: Final = {
    "entrypoint": "snooze_model.py", "class": "Model", "tensor_format": "numpy",
    "env": {"A": "b"}, "batching": True,
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, "n", 4, None]}],
    "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}],
}  # fmt: skip


def _read_manifest(content: bytes, folder: Path) -> None:
    (folder / "snooze_model.py").touch()
    (folder / "snooze_model.json").write_bytes(content)
    manifest = read_manifest(folder)
    manifest.describe()
    assert (folder / manifest.entrypoint).resolve().is_relative_to(folder.resolve())


_BY_PREPARE: Final = (SnoozeError, Malformed)
_XGBOOST_DOCUMENTS: Final = [json.loads(model) for model in _XGBOOST]
_XGBOOST_JSON: Final = json_text(*_XGBOOST_DOCUMENTS)
_XGBOOST_UBJSON: Final = weighted(
    (1, binary(*_UBJSON)), (1, document(*_XGBOOST_DOCUMENTS).map(as_ubjson))
)

SUBJECTS: Final = (
    Subject("safetensors", _HEADERS, _read_header),
    Subject("checkpoints", _damaged_checkpoints(), _build),
    Subject("ONNX", _ONNX, _read_onnx),
    Subject("XGBoost JSON", _XGBOOST_JSON, _growing(read_xgboost), _BY_PREPARE),
    Subject("XGBoost UBJSON", _XGBOOST_UBJSON, _growing(read_xgboost), _BY_PREPARE),
    Subject("LightGBM", text(*_LIGHTGBM), _growing(read_lightgbm), _BY_PREPARE),
    Subject("snooze_model.json", json_text(_MANIFEST), _read_manifest),
)
