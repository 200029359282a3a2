"""The modules that turn a text encoder's states into one embedding per text.

A folder saved by sentence-transformers lists them in modules.json. They run in that order, each on
what the one before it gave.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from onnx import TensorProto

from snoozeml.errors import ModelFailed, UnsupportedArchitecture
from snoozeml.prepare.safetensors.blocks import LOWEST, activation, linear, norm
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
        files: with its configuration.
        weights: with its tensors; empty where it has none.
    """

    kind: str
    folder: str
    config: Config
    files: list[Path]
    weights: list[Path]


class _Listed(msgspec.Struct, frozen=True):
    type: str
    path: str = ""


def read_modules(folder: Path) -> list[Module]:
    """The modules after the encoder; empty when the folder lists none.

    Raises:
        UnsupportedArchitecture: we have no module of this kind.
        ModelFailed: the list or a module's configuration is broken.
    """
    file = folder / MODULES_FILE
    if not file.is_file():
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
        known = ", ".join(_STEPS)
        raise UnsupportedArchitecture(f"{MODULES_FILE} names the module {kind}; supported: {known}")
    if not _is_inside(inner, folder):
        raise ModelFailed(f"{MODULES_FILE} names {listed.path!r}, which is not inside the folder")
    file = inner / "config.json"
    if kind in _SELDOM_CONFIGURED and not file.exists():
        return Module(kind, listed.path, Config({}), [], [])
    config = Config.read(file, f"{listed.path}/{file.name}")
    config.require("module_input_name", OUTPUT)
    config.require("module_output_name", OUTPUT)
    weights = weight_files(inner) if kind in _WEIGHTED else []
    return Module(kind, listed.path, config, [file], weights)


def _is_inside(path: Path, folder: Path) -> bool:
    try:
        path.exists()  # complains of names that are too long, as `resolve` does not
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # no name for a file, or links that end nowhere
        return False


def module_tensors(modules: list[Module]) -> dict[str, StoredTensor]:
    """Tensors of modules that have some, named after the module's folder."""
    return {
        f"{module.folder}.{name}": tensor
        for module in modules
        for name, tensor in read_checkpoint(module.weights).items()
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


def _dense(g: Graph, module: Module, x: Value, features: int) -> tuple[Value, int]:
    w = Weights(g, f"{module.folder}.")
    inner = activation(g, _activation(module.config), linear(g, w.at("linear"), x))
    outputs = w.at("linear").shape("weight")[0]
    if not module.config.flag("use_residual", default=False):
        return inner, outputs
    skip = x if outputs == features else linear(g, w.at("residual"), x)
    return g.op("Add", inner, skip), outputs


def _activation(config: Config) -> str:
    """The name that we have for a class of torch's.

    Raises:
        UnsupportedArchitecture: it is of somebody else, who may have written anything.
    """
    path = config.text("activation_function", "torch.nn.Tanh")
    if not path.startswith("torch.nn."):
        config.require("activation_function", "a class of torch.nn")
    name = path.rpartition(".")[2].lower()
    return "linear" if name == "identity" else name


def _layer_norm(g: Graph, module: Module, x: Value, features: int) -> tuple[Value, int]:
    return norm(g, Weights(g, f"{module.folder}.").at("norm"), x, 1e-5), features


def _dropout(_: Graph, __: Module, x: Value, features: int) -> tuple[Value, int]:
    """Nothing is dropped but in training."""
    return x, features


def _second_pooling(*_: object) -> tuple[Value, int]:
    raise ModelFailed(f"{MODULES_FILE} lists a Pooling that is not right after the Transformer")


_STEPS: Final[dict[str, _Step]] = {
    "Pooling": _second_pooling,
    "Dense": _dense,
    "Dropout": _dropout,
    "LayerNorm": _layer_norm,
    "Normalize": _normalize,
}
_WEIGHTED: Final = frozenset({"Dense", "LayerNorm"})
_SELDOM_CONFIGURED: Final = frozenset({"Dropout", "Normalize"})


def _pool(g: Graph, config: Config, encoded: Encoded, features: int) -> tuple[Value, int]:
    modes = _modes(config)
    pooled = [_POOLINGS[mode](g, encoded) for mode in modes]
    x = pooled[0] if len(pooled) == 1 else g.op("Concat", *pooled, axis=1)
    return x, features * len(modes)


def _modes(config: Config) -> list[str]:
    """In the order in which their results are joined.

    Raises:
        UnsupportedArchitecture: one is unknown.
    """
    config.require("pooling_mode", *_POOLINGS)
    flags = [mode for mode, key in _FLAGS.items() if config.flag(key, default=False)]
    return config.texts("pooling_mode") or flags or ["mean"]


def _first(g: Graph, encoded: Encoded) -> Value:
    tokens = encoded.tokens
    return tokens.at(encoded.hidden, tokens.end(last=False))


def _last(g: Graph, encoded: Encoded) -> Value:
    tokens = encoded.tokens
    return tokens.at(encoded.hidden, tokens.end(last=True))


def _highest(g: Graph, encoded: Encoded) -> Value:
    mask = g.op("Unsqueeze", encoded.tokens.mask, g.ints(2))
    padded = g.op("Where", mask, encoded.tokens.pad(encoded.hidden), g.constant(LOWEST))
    return g.op("ReduceMax", padded, g.ints(1), keepdims=0)


def _mean(_: Graph, encoded: Encoded) -> Value:
    return encoded.tokens.mean(encoded.hidden)


def _mean_by_root(g: Graph, encoded: Encoded) -> Value:
    tokens = encoded.tokens
    return g.op("Div", tokens.sum(encoded.hidden), g.op("Sqrt", tokens.count()))


def _weighted_mean(g: Graph, encoded: Encoded) -> Value:
    """Weighted by position, counted from 1 where the mask begins."""
    tokens = encoded.tokens
    places = g.op("Sub", tokens.positions, tokens.end(last=False))
    places = g.op("Cast", tokens.pack(places), to=TensorProto.FLOAT)
    weights = g.op("Unsqueeze", g.op("Add", places, g.constant(1.0)), g.ints(1))
    weighted = tokens.sum(g.op("Mul", encoded.hidden, weights))
    return g.op("Div", weighted, g.op("Max", tokens.sum(weights), g.constant(1e-9)))


_POOLINGS: Final[dict[str, Callable[[Graph, Encoded], Value]]] = {
    "cls": _first,
    "max": _highest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}

_FLAGS: Final = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""What turned each on before `pooling_mode` named them; in the order in which they are joined."""
