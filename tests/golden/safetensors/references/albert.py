from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)

from references.reference import case, texts

_CONFIG = AlbertConfig(
    vocab_size=40,
    embedding_size=10,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=36,
    max_position_embeddings=16,
    num_labels=5,
)
_GROUPS = AlbertConfig(
    vocab_size=50,
    embedding_size=12,
    hidden_size=20,
    num_hidden_layers=5,
    num_hidden_groups=2,
    inner_group_num=2,
    num_attention_heads=2,
    intermediate_size=18,
    max_position_embeddings=12,
    type_vocab_size=3,
    hidden_act="relu",
)
_TEXTS, _OTHER_TEXTS = texts(40, types=2), texts(50, types=3)

CASES = {
    "albert": case(AlbertModel, _CONFIG, _TEXTS),
    "albert-groups": case(AlbertModel, _GROUPS, _OTHER_TEXTS, add_pooling_layer=False),
    "albert-sequence-classification": case(AlbertForSequenceClassification, _CONFIG, _TEXTS),
    "albert-token-classification": case(AlbertForTokenClassification, _GROUPS, _OTHER_TEXTS),
    "albert-masked-lm": case(AlbertForMaskedLM, _CONFIG, _TEXTS),
}
