from transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    ElectraModel,
)

from references.reference import case, texts

_CONFIG = ElectraConfig(
    vocab_size=40,
    embedding_size=14,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=36,
    max_position_embeddings=16,
    num_labels=5,
)
_NOT_PROJECTED = ElectraConfig(
    vocab_size=50,
    embedding_size=20,
    hidden_size=20,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=18,
    max_position_embeddings=12,
    type_vocab_size=1,
    hidden_act="gelu_new",
)
_TEXTS, _OTHER_TEXTS = texts(40, types=2), texts(50)

CASES = {
    "electra": case(ElectraModel, _CONFIG, _TEXTS),
    "electra-not-projected": case(ElectraModel, _NOT_PROJECTED, _OTHER_TEXTS),
    "electra-sequence-classification": case(ElectraForSequenceClassification, _CONFIG, _TEXTS),
    "electra-token-classification": case(ElectraForTokenClassification, _CONFIG, _TEXTS),
    "electra-masked-lm": case(ElectraForMaskedLM, _CONFIG, _TEXTS),
    "electra-discriminator": case(ElectraForPreTraining, _NOT_PROJECTED, _OTHER_TEXTS),
}
