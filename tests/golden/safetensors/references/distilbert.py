from transformers import (
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
)

from references.reference import case, texts

_CONFIG = DistilBertConfig(
    vocab_size=40,
    dim=24,
    n_layers=2,
    n_heads=3,
    hidden_dim=36,
    max_position_embeddings=16,
    num_labels=5,
)
_OTHER = DistilBertConfig(
    vocab_size=50,
    dim=20,
    n_layers=3,
    n_heads=4,
    hidden_dim=16,
    max_position_embeddings=12,
    num_labels=1,
    activation="relu",
    sinusoidal_pos_embds=True,
)

CASES = {
    "distilbert": case(DistilBertModel, _CONFIG, texts(40)),
    "distilbert-sinusoidal": case(DistilBertModel, _OTHER, texts(50)),
    "distilbert-sequence-classification": case(
        DistilBertForSequenceClassification, _CONFIG, texts(40)
    ),
    "distilbert-token-classification": case(DistilBertForTokenClassification, _OTHER, texts(50)),
    "distilbert-masked-lm": case(DistilBertForMaskedLM, _OTHER, texts(50)),
}
