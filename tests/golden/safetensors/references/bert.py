from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from references.reference import case, texts

_CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=36,
    max_position_embeddings=16,
    num_labels=5,
)
_TEXTS = texts(40, types=2)

CASES = {
    "bert": case(BertModel, _CONFIG, _TEXTS),
    "bert-without-pooler": case(BertModel, _CONFIG, _TEXTS, add_pooling_layer=False),
    "bert-sequence-classification": case(BertForSequenceClassification, _CONFIG, _TEXTS),
    "bert-token-classification": case(BertForTokenClassification, _CONFIG, _TEXTS),
    "bert-masked-lm": case(BertForMaskedLM, _CONFIG, _TEXTS),
}
