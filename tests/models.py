"""Small ONNX models for tests and benchmarks, each written to a file by one call.

Every builder takes the path to write, and returns it. Weights are random with a fixed seed, so the
same call always writes the same model.
"""

import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT: Final = TensorProto.FLOAT
INT64: Final = TensorProto.INT64
STRING: Final = TensorProto.STRING

DATATYPES: Final = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}

Shape = Sequence[int | str | None]
Array = npt.NDArray[Any]
_OPSET: Final = 20
_IR_VERSION: Final = 10


def value(name: str, shape: Shape, datatype: int = FLOAT) -> onnx.ValueInfoProto:
    """A graph input or output; a dimension of None has no name."""
    return helper.make_tensor_value_info(name, datatype, list(shape))


def save(
    path: Path,
    nodes: Iterable[onnx.NodeProto],
    inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[onnx.ValueInfoProto],
    weights: dict[str, Array] | None = None,
) -> Path:
    """Write one graph with all its weights inside the file."""
    initializers = [numpy_helper.from_array(a, name) for name, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), path.stem, list(inputs), list(outputs), initializers)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    path.write_bytes(model.SerializeToString())
    return path


def identity_model(path: Path, shape: Shape = ("batch", "features"), datatype: int = FLOAT) -> Path:
    """`x` comes back as `y`."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return save(path, [node], [value("x", shape, datatype)], [value("y", shape, datatype)])


def linear_model(path: Path, features: int = 4, classes: int = 3, seed: int = 0) -> Path:
    """A softmax classifier with the interface of a scikit-learn export on the iris data.

    Shapes:
        X: (?, features) float
        label: (?,) int64
        probabilities: (?, classes) float
    """
    rng = np.random.default_rng(seed)
    nodes = [
        helper.make_node("Gemm", ["X", "coefficients", "intercepts"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=-1),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=-1, keepdims=0),
    ]
    weights = {
        "coefficients": rng.standard_normal((features, classes), dtype=np.float32),
        "intercepts": rng.standard_normal(classes, dtype=np.float32),
    }
    outputs = [value("label", [None], INT64), value("probabilities", [None, classes])]
    return save(path, nodes, [value("X", [None, features])], outputs, weights)


def scalar_model(path: Path) -> Path:
    """`y = x + x` on scalars: nothing here has an axis."""
    node = helper.make_node("Add", ["x", "x"], ["y"])
    return save(path, [node], [value("x", [])], [value("y", [])])


def fixed_batch_model(path: Path, batch: int = 1, side: int = 4) -> Path:
    """An image classifier exported with a batch dimension that is a number.

    Shapes:
        image: (batch, 3, side, side) float
        scores: (batch, 5) float
    """
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Flatten", ["image"], ["pixels"]),
        helper.make_node("MatMul", ["pixels", "coefficients"], ["scores"]),
    ]
    weights = {"coefficients": rng.standard_normal((3 * side * side, 5), dtype=np.float32)}
    image = value("image", [batch, 3, side, side])
    return save(path, nodes, [image], [value("scores", [batch, 5])], weights)


def recurrent_model(path: Path, layers: int = 2, features: int = 8, named: bool = True) -> Path:
    """A step of a recurrent network, whose state carries the batch on axis 1.

    Args:
        named: False leaves every dynamic dimension without a name, as many exporters do.

    Shapes:
        x: (batch, features) float
        state: (layers, batch, features) float
        y: (batch, features) float, = x + sum of the state over layers
        next_state: (layers, batch, features) float, = tanh(state + x)
    """
    batch = "batch" if named else None
    nodes = [
        helper.make_node("ReduceSum", ["state", "axis"], ["memory"], keepdims=0),
        helper.make_node("Add", ["x", "memory"], ["y"]),
        helper.make_node("Add", ["state", "x"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next_state"]),
    ]
    inputs = [value("x", [batch, features]), value("state", [layers, batch, features])]
    state_out: Shape = [layers, batch, features] if named else [None, None, None]
    outputs = [value("y", [batch, features]), value("next_state", state_out)]
    return save(path, nodes, inputs, outputs, {"axis": np.array([0], dtype=np.int64)})


def string_model(path: Path) -> Path:
    """`shout` is `text` with an exclamation mark, row by row."""
    node = helper.make_node("StringConcat", ["text", "mark"], ["shout"])
    text, shout = value("text", ["batch"], STRING), value("shout", ["batch"], STRING)
    return save(path, [node], [text], [shout], {"mark": np.array(["!"], dtype=object)})


def external_data_model(path: Path, location: str | None = None, features: int = 64) -> Path:
    """A matrix product whose weights lie in the file `weights.bin` beside the model.

    Args:
        location: written into the model instead, as it is, and no weights file is made.

    Shapes:
        x: (batch, features) float
        y: (batch, features) float
    """
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((features, features), dtype=np.float32)
    node = helper.make_node("MatMul", ["x", "matrix"], ["y"])
    io = [value("x", ["batch", features])], [value("y", ["batch", features])]
    model = onnx.ModelProto.FromString(save(path, [node], *io, {"matrix": matrix}).read_bytes())
    if location is None:
        location = "weights.bin"
        (path.parent / location).write_bytes(matrix.tobytes())
    store_outside(model.graph.initializer[0], location)
    path.write_bytes(model.SerializeToString())
    return path


def store_outside(tensor: TensorProto, location: str, offset: int = 0) -> None:
    """Replace a tensor's values by a reference to bytes in the file `location`."""
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    fields = {"location": location, "offset": str(offset), "length": str(length)}
    for key, text in fields.items():
        tensor.external_data.add(key=key, value=text)


def unbatched_output_model(path: Path) -> Path:
    """`mean` is one number computed from all rows: merging requests would change it.

    Shapes:
        x: (batch, 4) float
        y: (batch, 4) float, = x + x
        mean: () float
    """
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
    ]
    outputs = [value("y", ["batch", 4]), value("mean", [])]
    return save(path, nodes, [value("x", ["batch", 4])], outputs)


def sequence_output_model(path: Path) -> Path:
    """A classifier that answers with a list of dictionaries, as scikit-learn exports by default."""
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    probabilities = helper.make_map_type_proto(
        INT64, helper.make_tensor_type_proto(FLOAT, shape=None)
    )
    y = helper.make_value_info("y", helper.make_sequence_type_proto(probabilities))
    return save(path, [node], [value("x", ["batch", 2])], [y])


def slow_model(path: Path, milliseconds: float) -> Path:
    """`y = x`, after about `milliseconds` of matrix products on this machine.

    Shapes:
        x: (batch, 1) float
        y: (batch, 1) float
    """
    turns = max(1, round(milliseconds / 1000 / _seconds_per_turn(path.parent)))
    return _loop_model(path, turns)


def burning_model(path: Path) -> Path:
    """`y = ms`, after about that many milliseconds of matrix products on this machine.

    Of merged rows the largest counts, for all of them.

    Shapes:
        ms: (batch, 1) int64
        y: (batch, 1) float
    """
    nodes = [
        helper.make_node("ReduceMax", ["ms"], ["longest"], keepdims=0),
        helper.make_node("Mul", ["longest", "turns_per_ms"], ["turns"]),
        *_loop(),
        helper.make_node("Cast", ["ms"], ["x"], to=FLOAT),
        helper.make_node("Add", ["x", "nothing"], ["y"]),
    ]
    turns_per_ms = max(1, round(0.001 / _seconds_per_turn(path.parent)))
    weights: dict[str, Array] = {"turns_per_ms": np.array(turns_per_ms, dtype=np.int64)}
    inputs, outputs = [value("ms", ["batch", 1], INT64)], [value("y", ["batch", 1])]
    return save(path, nodes, inputs, outputs, weights | _LOOP_WEIGHTS)


def hungry_model(path: Path) -> Path:
    """`y = mib`, after filling that many MiB of memory and giving them back.

    Merged rows take the sum of what each asks for.

    Shapes:
        mib: (batch, 1) int64
        y: (batch, 1) float
    """
    nodes = [
        helper.make_node("ReduceSum", ["mib", "both"], ["together"], keepdims=0),
        helper.make_node("Mul", ["together", "floats_per_mib"], ["floats"]),
        helper.make_node("Reshape", ["floats", "one_axis"], ["length"]),
        helper.make_node("ConstantOfShape", ["length"], ["memory"]),
        helper.make_node("ReduceSum", ["memory"], ["nothing"], keepdims=0),
        helper.make_node("Cast", ["mib"], ["x"], to=FLOAT),
        helper.make_node("Add", ["x", "nothing"], ["y"]),
    ]
    weights: dict[str, Array] = {
        "both": np.array([0, 1], dtype=np.int64),
        "floats_per_mib": np.array(2**18, dtype=np.int64),
        "one_axis": np.array([1], dtype=np.int64),
    }
    inputs, outputs = [value("mib", ["batch", 1], INT64)], [value("y", ["batch", 1])]
    return save(path, nodes, inputs, outputs, weights)


@cache
def _seconds_per_turn(folder: Path) -> float:
    import onnxruntime  # most users of this module need no engine

    turns = 200
    path = _loop_model(folder / "calibration.onnx", turns)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    path.unlink()
    feed = {"x": np.zeros((1, 1), dtype=np.float32)}
    took_s = []
    for _ in range(5):  # the quickest was disturbed the least
        start = time.perf_counter()
        session.run(None, feed)
        took_s.append(time.perf_counter() - start)
    return min(took_s) / turns


def _loop_model(path: Path, turns: int) -> Path:
    nodes = [*_loop(), helper.make_node("Add", ["x", "nothing"], ["y"])]
    weights: dict[str, Array] = {"turns": np.array(turns, dtype=np.int64)}
    inputs, outputs = [value("x", ["batch", 1])], [value("y", ["batch", 1])]
    return save(path, nodes, inputs, outputs, weights | _LOOP_WEIGHTS)


_LOOP_WEIGHTS: Final[dict[str, Array]] = {
    "matrix": np.eye(64, dtype=np.float32),
    "zero": np.array(0, dtype=np.float32),
}


def _loop() -> list[onnx.NodeProto]:
    """`nothing`, a zero that takes as many matrix products as `turns` says."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "matrix"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next_state"]),
            helper.make_node("Identity", ["go_on"], ["next_go_on"]),
        ],
        "turn",
        [value("turn", [], INT64), value("go_on", [], TensorProto.BOOL), value("state", [64, 64])],
        [value("next_go_on", [], TensorProto.BOOL), value("next_state", [64, 64])],
    )
    return [
        helper.make_node("Loop", ["turns", "", "matrix"], ["end_state"], body=body),
        helper.make_node("ReduceMean", ["end_state"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
    ]


def encoder_model(
    path: Path,
    *,
    layers: int = 2,
    hidden: int = 32,
    vocab: int = 1000,
    heads: int = 4,
    seed: int = 3,
) -> Path:
    """A BERT encoder with random weights, in plain operators as exporters write it.

    `layers=6, hidden=384, vocab=30522, heads=12` has the shape of MiniLM-L6 and takes 90 MB.

    Shapes:
        input_ids, attention_mask, token_type_ids: (batch_size, sequence) int64
        last_hidden_state: (batch_size, sequence, hidden) float
    """
    encoder = _Encoder(hidden, heads, seed)
    encoder.embed(vocab)
    for layer in range(layers):
        encoder.attend(f"layer{layer}")
        encoder.feed_forward(f"layer{layer}")
    encoder.add("Identity", [encoder.state], "last_hidden_state")
    shape = ["batch_size", "sequence"]
    inputs = [value(n, shape, INT64) for n in ("input_ids", "attention_mask", "token_type_ids")]
    outputs = [value("last_hidden_state", [*shape, hidden])]
    return save(path, encoder.nodes, inputs, outputs, encoder.weights)


def pooling_model(path: Path, *, masked: bool = True, vocab: int = 50, hidden: int = 8) -> Path:
    """Token vectors and their mean, as small as an encoder of texts can be.

    Args:
        masked: False takes the mean over all tokens, whatever the mask says.

    Shapes:
        input_ids, attention_mask: (batch, sequence) int64
        tokens: (batch, sequence, hidden) float, before the mask is applied
        mean: (batch, hidden) float
    """
    return save(path, *_pooling(masked, vocab, hidden))


def two_tower_model(path: Path, *, vocab: int = 50, hidden: int = 8, side: int = 4) -> Path:
    """`pooling_model` beside a projection of images; neither knows of the other.

    Shapes:
        input_ids, attention_mask: (batch, sequence) int64
        pixel_values: (images, 3, side, side) float
        tokens: (batch, sequence, hidden) float
        mean: (batch, hidden) float
        image_embeds: (images, hidden) float
    """
    nodes, inputs, outputs, weights = _pooling(True, vocab, hidden)
    nodes += [
        helper.make_node("Flatten", ["pixel_values"], ["pixels"]),
        helper.make_node("MatMul", ["pixels", "projection"], ["image_embeds"]),
    ]
    inputs.append(value("pixel_values", ["images", 3, side, side]))
    outputs.append(value("image_embeds", ["images", hidden]))
    rng = np.random.default_rng(5)
    weights["projection"] = rng.standard_normal((3 * side * side, hidden), dtype=np.float32)
    return save(path, nodes, inputs, outputs, weights)


_Graph = tuple[
    list[onnx.NodeProto], list[onnx.ValueInfoProto], list[onnx.ValueInfoProto], dict[str, Array]
]


def _pooling(masked: bool, vocab: int, hidden: int) -> _Graph:
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
        # A mask to the power of 0 is 1 everywhere.
        helper.make_node("Pow", ["mask", "power"], ["share"]),
        helper.make_node("Unsqueeze", ["share", "last"], ["shares"]),
        helper.make_node("Mul", ["tokens", "shares"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["shares", "middle"], ["count"], keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
    ]
    weights: dict[str, Array] = {
        "table": np.random.default_rng(4).standard_normal((vocab, hidden), dtype=np.float32),
        "power": np.array(1 if masked else 0, dtype=np.float32),
        "last": np.array([2], dtype=np.int64),
        "middle": np.array([1], dtype=np.int64),
    }
    shape = ["batch", "sequence"]
    inputs = [value(name, shape, INT64) for name in ("input_ids", "attention_mask")]
    outputs = [value("tokens", [*shape, hidden]), value("mean", ["batch", hidden])]
    return nodes, inputs, outputs, weights


class _Encoder:
    """Collects the nodes and weights of an encoder; `state` names the newest hidden states."""

    _POSITIONS: Final = 512

    def __init__(self, hidden: int, heads: int, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.state = ""
        self._hidden = hidden
        self._heads = heads
        self._rng = np.random.default_rng(seed)

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        self.weights[name] = np.array(values, dtype=dtype)
        return name

    def random(self, name: str, *shape: int) -> str:
        self.weights[name] = self._rng.standard_normal(shape, dtype=np.float32) * 0.02
        return name

    def embed(self, vocab: int) -> None:
        """Sum of word, position and type embeddings, normalised; and the mask as a bias."""
        words = self.add("Gather", [self.random("words", vocab, self._hidden), "input_ids"], "word")
        types = self.add(
            "Gather", [self.random("types", 2, self._hidden), "token_type_ids"], "type"
        )
        self.add("Shape", ["input_ids"], "length", start=1, end=2)
        table = self.random("positions", self._POSITIONS, self._hidden)
        first = self.constant("first", [0], np.int64)
        positions = self.add("Slice", [table, first, "length"], "position")
        summed = self.add("Add", [self.add("Add", [words, types], "pair"), positions], "embedding")
        self.state = self._normalise(summed, "embedding_norm")
        self.add("Cast", ["attention_mask"], "mask", to=FLOAT)
        self.add("Unsqueeze", ["mask", self.constant("head_axes", [1, 2], np.int64)], "mask4")
        self.add("Sub", [self.constant("one", 1), "mask4"], "hidden_tokens")
        self.add("Mul", ["hidden_tokens", self.constant("lowest", -10000)], "mask_bias")

    def attend(self, layer: str) -> None:
        query, key, values = (self._split_heads(f"{layer}.{part}") for part in ("q", "k", "v"))
        turned = self.add("Transpose", [key], f"{layer}.kt", perm=[0, 1, 3, 2])
        scores = self.add("MatMul", [query, turned], f"{layer}.scores")
        root = self.constant(f"{layer}.root", (self._hidden // self._heads) ** 0.5)
        scaled = self.add("Div", [scores, root], f"{layer}.scaled")
        masked = self.add("Add", [scaled, "mask_bias"], f"{layer}.masked")
        weights = self.add("Softmax", [masked], f"{layer}.weights", axis=-1)
        mixed = self.add("MatMul", [weights, values], f"{layer}.mixed")
        turned = self.add("Transpose", [mixed], f"{layer}.turned", perm=[0, 2, 1, 3])
        shape = self.constant(f"{layer}.joined_shape", [0, 0, self._hidden], np.int64)
        joined = self.add("Reshape", [turned, shape], f"{layer}.joined")
        self._add_and_normalise(self._dense(joined, f"{layer}.out", self._hidden), f"{layer}.norm1")

    def feed_forward(self, layer: str) -> None:
        wide = self._dense(self.state, f"{layer}.wide", 4 * self._hidden, from_=self._hidden)
        bent = self._gelu(wide, layer)
        narrow = self._dense(bent, f"{layer}.narrow", self._hidden, from_=4 * self._hidden)
        self._add_and_normalise(narrow, f"{layer}.norm2")

    def _split_heads(self, name: str) -> str:
        dense = self._dense(self.state, name, self._hidden)
        sizes = [0, 0, self._heads, self._hidden // self._heads]
        shape = self.constant(f"{name}.split_shape", sizes, np.int64)
        split = self.add("Reshape", [dense, shape], f"{name}.split")
        return self.add("Transpose", [split], f"{name}.heads", perm=[0, 2, 1, 3])

    def _dense(self, source: str, name: str, width: int, from_: int | None = None) -> str:
        matrix = self.random(f"{name}.weight", from_ or self._hidden, width)
        product = self.add("MatMul", [source, matrix], f"{name}.product")
        return self.add("Add", [self.random(f"{name}.bias", width), product], f"{name}.dense")

    def _gelu(self, source: str, layer: str) -> str:
        root = self.constant(f"{layer}.root2", 2**0.5)
        scaled = self.add("Div", [source, root], f"{layer}.gelu_scaled")
        erf = self.add("Erf", [scaled], f"{layer}.erf")
        shifted = self.add("Add", [erf, self.constant(f"{layer}.one", 1)], f"{layer}.gelu_shifted")
        product = self.add("Mul", [source, shifted], f"{layer}.gelu_product")
        return self.add("Mul", [product, self.constant(f"{layer}.half", 0.5)], f"{layer}.gelu")

    def _add_and_normalise(self, update: str, name: str) -> None:
        total = self.add("Add", [update, self.state], f"{name}.sum")
        self.state = self._normalise(total, name)

    def _normalise(self, source: str, name: str) -> str:
        scale = self.constant(f"{name}.scale", np.ones(self._hidden))
        shift = self.constant(f"{name}.shift", np.zeros(self._hidden))
        return self.add(
            "LayerNormalization", [source, scale, shift], f"{name}.normal", epsilon=1e-12
        )
