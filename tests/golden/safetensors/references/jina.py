"""JinaBERT v2 in plain numpy, after its paper and its published architecture.

The transformers library does not have it: https://arxiv.org/abs/2310.19923 describes it, and
https://huggingface.co/jinaai/jina-bert-implementation and jina-bert-v2-qk-post-norm publish its two
forms. The numbers are computed in float64.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from references.reference import Arrays, Reference, texts

_CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "emb_pooler": "mean",
    "hidden_act": "gelu",
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
_OTHER: dict[str, Any] = {
    "hidden_size": 20,
    "num_attention_heads": 2,
    "feed_forward_type": "reglu",
    "layer_norm_eps": 1e-3,
}


class Jina:
    """Args: later: the form whose queries and keys are normalised."""

    def __init__(
        self, architecture: str, *, later: bool = False, prefix: str = "", **options: Any
    ) -> None:
        self.config = {"architectures": [architecture]} | _CONFIG | options
        self.inputs = texts(40, types=2)
        self._later, self._prefix = later, prefix
        self._random = np.random.default_rng(0)
        self.tensors: dict[str, np.ndarray] = {}
        self._make()

    def _make(self) -> None:
        c = self.config
        features, inner = c["hidden_size"], c["intermediate_size"]
        self._add("embeddings.word_embeddings.weight", c["vocab_size"], features)
        self._add("embeddings.token_type_embeddings.weight", c["type_vocab_size"], features)
        self._add_norm("embeddings.LayerNorm")
        for index in range(c["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            for part in ("self.query", "self.key", "self.value", "output.dense"):
                self._add_linear(f"{layer}.attention.{part}", features, features)
            self._add_norm(f"{layer}.attention.output.LayerNorm")
            gates, down, norms = self._names()
            self._add(f"{layer}.{gates}.weight", 2 * inner, features)
            self._add_linear(f"{layer}.{down}", features, inner)
            for norm in norms:
                self._add_norm(f"{layer}.{norm}")

    def _names(self) -> tuple[str, str, list[str]]:
        if not self._later:
            return "mlp.gated_layers", "mlp.wo", ["mlp.layernorm"]
        norms = ["attention.self.layer_norm_q", "attention.self.layer_norm_k"]
        return "mlp.up_gated_layer", "mlp.down_layer", [*norms, "layer_norm_1", "layer_norm_2"]

    def _add(self, name: str, *shape: int) -> None:
        values = 0.3 * self._random.normal(size=shape)
        self.tensors[self._prefix + name] = values.astype(np.float32)

    def _add_linear(self, name: str, outputs: int, inputs: int) -> None:
        self._add(f"{name}.weight", outputs, inputs)
        self._add(f"{name}.bias", outputs)

    def _add_norm(self, name: str) -> None:
        self._add(f"{name}.weight", self.config["hidden_size"])
        self._add(f"{name}.bias", self.config["hidden_size"])

    def with_head(self, *linears: tuple[str, int], norms: tuple[str, ...] = ()) -> "Jina":
        """Args: linears: names of layers, without prefix, and how many outputs each has."""
        prefix, self._prefix = self._prefix, ""
        for name, outputs in linears:
            self._add_linear(name, outputs, self.config["hidden_size"])
        for name in norms:
            self._add_norm(name)
        self._prefix = prefix
        return self

    def with_words(self) -> "Jina":
        """The head for masked words, whose table is that of the input."""
        head = "cls.predictions"
        norms = (f"{head}.transform.LayerNorm",)
        self.with_head((f"{head}.transform.dense", self.config["hidden_size"]), norms=norms)
        bias = self._random.normal(size=self.config["vocab_size"])
        self.tensors[f"{head}.bias"] = bias.astype(np.float32)
        return self

    def infer(self, inputs: Arrays) -> Arrays:
        hidden = self._hidden(inputs)
        pooled = None
        for name in ("pooler.dense", "bert.pooler.dense"):
            if f"{name}.weight" in self.tensors:
                pooled = np.tanh(self._linear(name, hidden[:, 0]))
        return {name: x.astype(np.float32) for name, x in self._outputs(hidden, pooled).items()}

    def _outputs(self, hidden: np.ndarray, pooled: np.ndarray | None) -> dict[str, np.ndarray]:
        if "cls.predictions.bias" in self.tensors:
            x = _gelu(self._linear("cls.predictions.transform.dense", hidden))
            x = self._norm("cls.predictions.transform.LayerNorm", x)
            table = self.tensors[f"{self._prefix}embeddings.word_embeddings.weight"]
            return {"logits": x @ table.T + self.tensors["cls.predictions.bias"]}
        if "classifier.weight" in self.tensors:
            return {"logits": self._linear("classifier", hidden if pooled is None else pooled)}
        states = {"last_hidden_state": hidden}
        return states if pooled is None else states | {"pooler_output": pooled}

    def _hidden(self, inputs: Arrays) -> np.ndarray:
        """Shapes: returns: (batch, sequence, features)"""
        at = self._prefix
        words = self.tensors[f"{at}embeddings.word_embeddings.weight"][inputs["input_ids"]]
        kinds = self.tensors[f"{at}embeddings.token_type_embeddings.weight"]
        x = words.astype(np.float64) + kinds[inputs["token_type_ids"]]
        x = self._norm(f"{at}embeddings.LayerNorm", x)
        bias = (
            self._alibi(x.shape[1]) + np.where(inputs["attention_mask"], 0, -1e300)[:, None, None]
        )
        for index in range(self.config["num_hidden_layers"]):
            x = self._layer(f"{at}encoder.layer.{index}", x, bias)
        return x

    def _layer(self, at: str, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        attended = self._linear(f"{at}.attention.output.dense", self._attend(at, x, bias))
        attended = self._norm(f"{at}.attention.output.LayerNorm", attended + x)
        x = self._norm(f"{at}.layer_norm_1", attended + x) if self._later else attended
        gates, down, norms = self._names()
        first, second = np.split(self._linear(f"{at}.{gates}", x), 2, axis=-1)
        act = _gelu if self.config["feed_forward_type"] == "geglu" else _relu
        product = first * act(second) if self._later else act(first) * second
        return self._norm(f"{at}.{norms[-1]}", self._linear(f"{at}.{down}", product) + x)

    def _attend(self, at: str, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        q, k, v = (
            self._linear(f"{at}.attention.self.{part}", x) for part in ("query", "key", "value")
        )
        if self._later:
            q = self._norm(f"{at}.attention.self.layer_norm_q", q)
            k = self._norm(f"{at}.attention.self.layer_norm_k", k)
        q, k, v = (self._heads(part) for part in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + bias
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = shares / shares.sum(axis=-1, keepdims=True) @ v
        return mixed.swapaxes(1, 2).reshape(x.shape)

    def _heads(self, x: np.ndarray) -> np.ndarray:
        heads = self.config["num_attention_heads"]
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    def _alibi(self, length: int) -> np.ndarray:
        """Shapes: returns: (1, heads, length, length)"""
        slopes = np.array(_SLOPES[self.config["num_attention_heads"]]).reshape(1, -1, 1, 1)
        positions = np.arange(length)
        return -slopes * np.abs(positions[:, None] - positions[None, :])

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0)

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + self.config["layer_norm_eps"])
        return scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]


_SLOPES = {
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],  # those of two heads, then every other one of four
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
}
"""By the number of heads; https://arxiv.org/abs/2108.12409 and its authors' code."""


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def _sequence_classes(**options: Any) -> Reference:
    model = Jina("JinaBertForSequenceClassification", prefix="bert.", **options)
    return model.with_head(("bert.pooler.dense", model.config["hidden_size"]), ("classifier", 5))


CASES: dict[str, Callable[[], Reference]] = {
    "jina": lambda: Jina("JinaBertModel").with_head(("pooler.dense", 24)),
    "jina-six-heads": lambda: Jina("JinaBertModel", num_attention_heads=6),
    "jina-headless-masked-lm": lambda: Jina("JinaBertForMaskedLM", **_OTHER),
    "jina-masked-lm": lambda: Jina("JinaBertForMaskedLM", prefix="bert.").with_words(),
    "jina-sequence-classification": lambda: _sequence_classes(),
    "jina-token-classification": lambda: Jina(
        "JinaBertForTokenClassification", prefix="bert.", **_OTHER
    ).with_head(("classifier", 5)),
    "jina-later": lambda: Jina("JinaBertModel", later=True, num_attention_heads=4),
    "jina-later-sequence-classification": lambda: _sequence_classes(later=True, **_OTHER),
}
