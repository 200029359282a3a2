from transformers import (
    CamembertConfig,
    CamembertForMaskedLM,
    CamembertForSequenceClassification,
    CamembertForTokenClassification,
    CamembertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
    XLMRobertaModel,
)

from references.reference import case, texts

_SIZES = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "num_labels": 3,
}
_ROBERTA = RobertaConfig(**_SIZES, type_vocab_size=1, layer_norm_eps=1e-5)
_OTHER_PADDING = RobertaConfig(
    **_SIZES | {"num_attention_heads": 8}, type_vocab_size=2, pad_token_id=4, hidden_act="relu"
)
_XLM = XLMRobertaConfig(**_SIZES, hidden_act="gelu_new", type_vocab_size=1)
_CAMEMBERT = CamembertConfig(**_SIZES, type_vocab_size=2, hidden_act="silu")
_TEXTS, _TYPED = texts(40), texts(40, types=2)
_PADDED = texts(40, types=2, padding=4)

CASES = {
    "roberta": case(RobertaModel, _ROBERTA, _TEXTS),
    "roberta-without-pooler": case(RobertaModel, _OTHER_PADDING, _PADDED, add_pooling_layer=False),
    "roberta-sequence-classification": case(RobertaForSequenceClassification, _ROBERTA, _TEXTS),
    "roberta-token-classification": case(RobertaForTokenClassification, _OTHER_PADDING, _PADDED),
    "roberta-masked-lm": case(RobertaForMaskedLM, _ROBERTA, _TEXTS),
    "xlm-roberta": case(XLMRobertaModel, _XLM, _TEXTS),
    "xlm-roberta-sequence-classification": case(XLMRobertaForSequenceClassification, _XLM, _TEXTS),
    "xlm-roberta-token-classification": case(XLMRobertaForTokenClassification, _XLM, _TEXTS),
    "xlm-roberta-masked-lm": case(XLMRobertaForMaskedLM, _XLM, _TEXTS),
    "camembert": case(CamembertModel, _CAMEMBERT, _TYPED),
    "camembert-sequence-classification": case(
        CamembertForSequenceClassification, _CAMEMBERT, _TYPED
    ),
    "camembert-token-classification": case(CamembertForTokenClassification, _CAMEMBERT, _TYPED),
    "camembert-masked-lm": case(CamembertForMaskedLM, _CAMEMBERT, _TYPED),
}
