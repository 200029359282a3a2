"""The modules that turn a text encoder's states into one embedding per text.

A folder saved by sentence-transformers lists them in modules.json. They run in that order, each on
what the one before it gave.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from onnx import TensorProto

from snoozeml.errors import ModelFailed
from snoozeml.prepare.safetensors.blocks import LOWEST, activation, linear
from snoozeml.prepare.safetensors.checkpoint import StoredTensor, read_checkpoint, weight_files
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.graph import Graph, Value, Weights
from snoozeml.prepare.safetensors.text import Encoded, text_output

MODULES_FILE: Final = "modules.json"
OUTPUT: Final = "sentence_embedding"


class Module(NamedTuple):
    """One module after the encoder.

    Attributes:
        kind: the class's name.
        folder: relative to the model's.
    """

    kind: str
    folder: str
    config: Config
    files: list[Path]


class _Listed(msgspec.Struct, frozen=True):
    type: str
    path: str = ""


def read_modules(folder: Path) -> list[Module]:
    """The modules after the encoder; empty when the folder lists none.

    Raises:
        ModelFailed: the list or a module's configuration is broken, or a module unknown.
    """
    file = folder / MODULES_FILE
    if not file.exists():
        return []
    try:
        listed = msgspec.json.decode(file.read_bytes(), type=list[_Listed])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFailed(f"{MODULES_FILE} is not a list of modules: {error}") from None
    return [_read(folder, module) for module in listed if _kind(module) != "Transformer"]


def _kind(listed: _Listed) -> str:
    return listed.type.rpartition(".")[2]


def _read(folder: Path, listed: _Listed) -> Module:
    kind, inner = _kind(listed), folder / listed.path
    if kind not in _STEPS:
        known = ", ".join(sorted(_STEPS))
        raise ModelFailed(f"{MODULES_FILE} names the module {kind}; supported: {known}")
    if not inner.resolve().is_relative_to(folder.resolve()):
        raise ModelFailed(f"{MODULES_FILE} names {listed.path!r}, which is outside the folder")
    if kind == "Normalize":
        return Module(kind, listed.path, Config({}), [])
    files = [inner / "config.json"]
    config = Config.read(files[0])
    weights = weight_files(inner) if kind == "Dense" else []
    return Module(kind, listed.path, config, files + weights)


def module_tensors(modules: list[Module]) -> dict[str, StoredTensor]:
    """Tensors of modules that have some, named after the module's folder."""
    return {
        f"{module.folder}.{name}": tensor
        for module in modules
        for name, tensor in read_checkpoint(module.files[1:]).items()
    }


def add_embedding(g: Graph, modules: list[Module], encoded: Encoded, features: int) -> None:
    """Add the output `sentence_embedding`, of shape (batch, features of the last module).

    Raises:
        ModelFailed: the modules do not begin with a pooling.
    """
    if not modules or modules[0].kind != "Pooling":
        raise ModelFailed(f"{MODULES_FILE} must list a Pooling right after the Transformer")
    x, features = _pool(g, modules[0].config, encoded, features)
    for module in modules[1:]:
        x, features = _STEPS[module.kind](g, module, x, features)
    text_output(g, OUTPUT, x, features)


_Step = Callable[[Graph, Module, Value, int], tuple[Value, int]]
"""(graph, module, x of shape (batch, features), features) → the same of its result"""


def _normalize(g: Graph, _: Module, x: Value, features: int) -> tuple[Value, int]:
    length = g.op("ReduceL2", x, g.ints(-1), keepdims=1)
    return g.op("Div", x, g.op("Max", length, g.constant(1e-12))), features


def _dense(g: Graph, module: Module, x: Value, _: int) -> tuple[Value, int]:
    w = Weights(g, f"{module.folder}.").at("linear")
    name = module.config.text("activation_function", "Tanh").rpartition(".")[2].lower()
    x = activation(g, "linear" if name == "identity" else name, linear(g, w, x))
    return x, w.shape("weight")[0]


def _second_pooling(*_: object) -> tuple[Value, int]:
    raise ModelFailed(f"{MODULES_FILE} lists a Pooling that is not right after the Transformer")


_STEPS: Final[dict[str, _Step]] = {
    "Pooling": _second_pooling,
    "Normalize": _normalize,
    "Dense": _dense,
}


def _pool(g: Graph, config: Config, encoded: Encoded, features: int) -> tuple[Value, int]:
    modes = _modes(config)
    pooled = [_POOLINGS[mode](g, encoded) for mode in modes]
    x = pooled[0] if len(pooled) == 1 else g.op("Concat", *pooled, axis=1)
    return x, features * len(modes)


def _modes(config: Config) -> list[str]:
    """In the order in which their results are joined.

    Raises:
        ModelFailed: there is none, or one that we do not know.
    """
    modes = [mode for mode in _POOLINGS if config.flag(f"pooling_mode_{mode}", default=False)]
    if "pooling_mode" in config:
        short = config.text("pooling_mode")
        modes = [mode for mode in _POOLINGS if mode in (short, f"{short}_token", f"{short}_tokens")]
    if not modes:
        known = ", ".join(_POOLINGS)
        raise ModelFailed(f"the Pooling's config.json turns no pooling on that is known: {known}")
    return modes


def _first_token(g: Graph, encoded: Encoded) -> Value:
    return encoded.tokens.first(encoded.hidden)


def _highest(g: Graph, encoded: Encoded) -> Value:
    mask = g.op("Unsqueeze", encoded.tokens.mask, g.ints(2))
    padded = g.op("Where", mask, encoded.tokens.pad(encoded.hidden), g.constant(LOWEST))
    return g.op("ReduceMax", padded, g.ints(1), keepdims=0)


def _sum(g: Graph, encoded: Encoded) -> Value:
    return g.op("ReduceSum", encoded.tokens.restore(encoded.hidden), g.ints(1), keepdims=0)


def _count(g: Graph, encoded: Encoded) -> Value:
    """Real tokens of each text. Shapes: returns: (batch, 1)"""
    mask = g.op("Cast", encoded.tokens.mask, to=TensorProto.FLOAT)
    counted = g.op("ReduceSum", mask, g.ints(1), keepdims=1)
    return g.op("Max", counted, g.constant(1e-9))


def _mean(g: Graph, encoded: Encoded) -> Value:
    return g.op("Div", _sum(g, encoded), _count(g, encoded))


def _mean_by_root(g: Graph, encoded: Encoded) -> Value:
    return g.op("Div", _sum(g, encoded), g.op("Sqrt", _count(g, encoded)))


def _weighted_mean(g: Graph, encoded: Encoded) -> Value:
    """Weighted by position, counted from 1."""
    columns = g.op("Cast", encoded.tokens.columns, to=TensorProto.FLOAT)
    weights = g.op("Add", columns, g.constant(1.0))
    weights = g.op("Unsqueeze", weights, g.ints(1))
    weighted = encoded.tokens.restore(g.op("Mul", encoded.hidden, weights))
    total = g.op("ReduceSum", encoded.tokens.restore(weights), g.ints(1), keepdims=0)
    summed = g.op("ReduceSum", weighted, g.ints(1), keepdims=0)
    return g.op("Div", summed, g.op("Max", total, g.constant(1e-9)))


def _last_token(g: Graph, encoded: Encoded) -> Value:
    mask = g.op("Cast", encoded.tokens.mask, to=TensorProto.INT64)
    column = g.op("ArgMax", mask, axis=1, keepdims=0, select_last_index=1)
    index = g.op("Unsqueeze", column, g.ints(1))
    return g.op("GatherND", encoded.tokens.pad(encoded.hidden), index, batch_dims=1)


_POOLINGS: Final[dict[str, Callable[[Graph, Encoded], Value]]] = {
    "cls_token": _first_token,
    "max_tokens": _highest,
    "mean_tokens": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean_tokens": _weighted_mean,
    "lasttoken": _last_token,
}
"""By the key that turns each on; several are joined in this order."""
