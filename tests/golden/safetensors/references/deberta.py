from transformers import (
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DebertaV2ForSequenceClassification,
    DebertaV2ForTokenClassification,
    DebertaV2Model,
)

from references.reference import case, texts

_V3 = DebertaV2Config(
    vocab_size=40,
    hidden_size=18,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=24,
    num_labels=3,
    relative_attention=True,
    position_buckets=6,
    max_relative_positions=-1,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type="p2c|c2p",
    position_biased_input=False,
    type_vocab_size=0,
    legacy=False,
)
_V2 = DebertaV2Config(
    **_V3.to_diff_dict()
    | {
        "conv_kernel_size": 3,
        "conv_act": "gelu",
        "conv_groups": 2,
        "position_buckets": 8,
        "max_relative_positions": 20,
        "legacy": True,
        "pooler_hidden_act": "tanh",
    }
)
_MANY_BUCKETS = DebertaV2Config(**_V3.to_diff_dict() | {"position_buckets": 64})
_ABSOLUTE = DebertaV2Config(
    vocab_size=50,
    embedding_size=10,
    hidden_size=20,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=18,
    max_position_embeddings=12,
    type_vocab_size=2,
    hidden_act="gelu_new",
    layer_norm_eps=1e-6,
)
_ONE_KIND = {"relative_attention": True, "share_att_key": False, "max_relative_positions": 5}
_C2P = DebertaV2Config(**_ABSOLUTE.to_diff_dict() | _ONE_KIND | {"pos_att_type": ["c2p"]})
_P2C = DebertaV2Config(**_ABSOLUTE.to_diff_dict() | _ONE_KIND | {"pos_att_type": ["p2c"]})
_TEXTS, _TYPED = texts(40, longest=20), texts(50, types=2)
# What the library makes of a text whose first token is masked depends on the padding.
_FIRST_SEEN = _TEXTS[:-1]

CASES = {
    "deberta-v3": case(DebertaV2Model, _V3, _TEXTS),
    "deberta-v3-sequence-classification": case(
        DebertaV2ForSequenceClassification, _V3, _FIRST_SEEN
    ),
    "deberta-v3-token-classification": case(DebertaV2ForTokenClassification, _V3, _TEXTS),
    "deberta-v3-masked-lm": case(DebertaV2ForMaskedLM, _V3, _TEXTS),
    "deberta-v2": case(DebertaV2Model, _V2, _TEXTS),
    "deberta-v2-sequence-classification": case(
        DebertaV2ForSequenceClassification, _V2, _FIRST_SEEN
    ),
    "deberta-v2-masked-lm": case(DebertaV2ForMaskedLM, _V2, _TEXTS),
    "deberta-many-buckets": case(DebertaV2Model, _MANY_BUCKETS, _TEXTS),
    "deberta-absolute": case(DebertaV2Model, _ABSOLUTE, _TYPED),
    "deberta-absolute-masked-lm": case(DebertaV2ForMaskedLM, _ABSOLUTE, _TYPED),
    "deberta-c2p": case(DebertaV2Model, _C2P, _TYPED),
    "deberta-p2c": case(DebertaV2Model, _P2C, _TYPED),
}
