from transformers import (
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetForSequenceClassification,
    MPNetForTokenClassification,
    MPNetModel,
)

from references.reference import case, texts

_CONFIG = MPNetConfig(
    vocab_size=40,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=20,
    max_position_embeddings=24,
    num_labels=3,
    layer_norm_eps=1e-5,
)
# Long enough for distances that share the last bucket.
_LONG = MPNetConfig(
    vocab_size=20,
    hidden_size=10,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=160,
    hidden_act="gelu_new",
)
_TEXTS = texts(40, longest=20)

CASES = {
    "mpnet": case(MPNetModel, _CONFIG, _TEXTS),
    "mpnet-long": case(
        MPNetModel, _LONG, texts(20, longest=150, padding=1), add_pooling_layer=False
    ),
    "mpnet-sequence-classification": case(MPNetForSequenceClassification, _CONFIG, _TEXTS),
    "mpnet-token-classification": case(MPNetForTokenClassification, _CONFIG, _TEXTS),
    "mpnet-masked-lm": case(MPNetForMaskedLM, _CONFIG, _TEXTS),
}
