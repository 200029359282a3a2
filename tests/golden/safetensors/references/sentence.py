"""Encoders with modules of the sentence-transformers library, saved as that library saves them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
)
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel, PreTrainedModel

from references.reference import Arrays, Reference, Transformers, texts

_FEATURES = 8
_BERT = BertConfig(
    vocab_size=20,
    hidden_size=_FEATURES,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=10,
)
_MODERN = ModernBertConfig(
    vocab_size=20,
    hidden_size=_FEATURES,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=10,
    local_attention=6,
    pad_token_id=0,
)
_RELEASED_AS = "sentence_transformers.models"


class SentenceTransformer(Transformers):
    """Args: settings: of the pooling, if not as this release of the library saves them."""

    def __init__(
        self,
        model: PreTrainedModel,
        modules: Sequence[Module],
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(model, texts(20, types=2 * isinstance(model, BertModel)))
        self._modules, self._settings = modules, settings
        for module in modules:
            for parameter in module.parameters():
                parameter.data += 0.1 * torch.randn(parameter.shape)
            module.eval()

    def infer(self, inputs: Arrays) -> Arrays:
        outputs = super().infer(inputs)
        features = {
            "token_embeddings": torch.from_numpy(outputs["last_hidden_state"]),
            "attention_mask": torch.from_numpy(inputs["attention_mask"]),
        }
        with torch.no_grad():
            for module in self._modules:
                features = module(features)
        return {**outputs, "sentence_embedding": features["sentence_embedding"].numpy()}

    @property
    def files(self) -> dict[str, bytes]:
        listed = [{"idx": 0, "name": "0", "path": "", "type": f"{_RELEASED_AS}.Transformer"}]
        with TemporaryDirectory() as root:
            for index, module in enumerate(self._modules, 1):
                kind = type(module).__name__
                path = f"{index}_{kind}"
                folder = Path(root, path)
                folder.mkdir()
                module.save(str(folder))
                where = {"path": path, "type": f"{_RELEASED_AS}.{kind}"}
                listed.append({"idx": index, "name": str(index), **where})
            if self._settings is not None:
                Path(root, listed[1]["path"], "config.json").write_text(json.dumps(self._settings))
            saved = [file for file in Path(root).rglob("*") if file.is_file()]
            files = {str(file.relative_to(root)): file.read_bytes() for file in saved}
        return files | {"modules.json": json.dumps(listed, indent=1).encode()}


def _bert(*modules: Callable[[], Module], **settings: Any) -> Callable[[], Reference]:
    return lambda: SentenceTransformer(
        BertModel(_BERT, add_pooling_layer=False),
        [make() for make in modules],
        settings or None,
    )


def _pooling(*modes: str) -> Callable[[], Module]:
    return lambda: Pooling(_FEATURES, pooling_mode=modes)


def _dense(inputs: int, outputs: int, **options: Any) -> Callable[[], Module]:
    return lambda: Dense(inputs, outputs, **options)


def _old_settings(*modes: str) -> dict[str, Any]:
    flags = {f"pooling_mode_{mode}": mode in modes for mode in _OLD_MODES}
    return {"word_embedding_dimension": _FEATURES, **flags}


_OLD_MODES = (
    "cls_token",
    "mean_tokens",
    "max_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)


def _modern() -> Reference:
    return SentenceTransformer(ModernBertModel(_MODERN), [_pooling("mean")(), Normalize()])


CASES = {
    **{f"sentence-{mode}": _bert(_pooling(mode)) for mode in Pooling.POOLING_MODES},
    "sentence-joined": _bert(_pooling("lasttoken", "cls"), Normalize),
    "sentence-old": _bert(_pooling("mean"), Normalize, **_old_settings("mean_tokens")),
    "sentence-old-joined": _bert(_pooling(*Pooling.POOLING_MODES), **_old_settings(*_OLD_MODES)),
    "sentence-old-none": _bert(_pooling("mean"), **_old_settings()),
    "sentence-dense": _bert(
        _pooling("mean"), _dense(_FEATURES, 6), Dropout, lambda: LayerNorm(6), Normalize
    ),
    "sentence-dense-activations": _bert(
        _pooling("cls", "max"),
        _dense(2 * _FEATURES, 6, bias=False, activation_function=torch.nn.Identity()),
        _dense(6, 6, activation_function=torch.nn.GELU(), use_residual=True),
        _dense(6, 9, activation_function=torch.nn.ReLU(), use_residual=True),
        _dense(9, 5, activation_function=torch.nn.SiLU()),
        _dense(5, 4, activation_function=torch.nn.Sigmoid()),
    ),
    "sentence-modernbert": _modern,
}
