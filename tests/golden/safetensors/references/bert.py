from collections.abc import Callable

from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    PreTrainedModel,
)

from references.reference import Reference, Transformers, texts

_CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=36,
    max_position_embeddings=16,
    num_labels=5,
)


def _case(model: type[PreTrainedModel], **options: bool) -> Callable[[], Reference]:
    return lambda: Transformers(model(_CONFIG, **options), texts(40, types=2))


CASES = {
    "bert": _case(BertModel),
    "bert-without-pooler": _case(BertModel, add_pooling_layer=False),
    "bert-sequence-classification": _case(BertForSequenceClassification),
    "bert-token-classification": _case(BertForTokenClassification),
    "bert-masked-lm": _case(BertForMaskedLM),
}
