"""Settings that would need other code than there is are refused by name, never passed over."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from golden.safetensors.compare import HERE
from jobs import prepare_job
from snoozeml.core.plan import PrepareJob
from snoozeml.errors import ModelFailed, UnsupportedArchitecture
from snoozeml.prepare.safetensors.model import CONFIG_FILE, prepare

_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "modernbert",
        {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
        "rope_type",
    ),
    ("modernbert", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("modernbert", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
    (
        "modernbert-sequence-classification",
        {"classifier_pooling": "max"},
        "classifier_pooling",
    ),
    ("nomic", {"head_dim": 4}, "head_dim"),
    ("nomic", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type"),
    ("nomic-authors", {"activation_function": "gelu"}, "activation_function"),
    ("nomic-authors", {"causal": True}, "causal"),
    ("nomic-authors", {"num_experts": 8, "moe_every_n_layers": 2}, "moe_every_n_layers"),
    ("nomic-authors", {"prenorm": True}, "prenorm"),
    ("nomic-authors", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction"),
    ("nomic-authors", {"rotary_emb_interleaved": True}, "rotary_emb_interleaved"),
    ("nomic-authors", {"rotary_emb_scale_base": 512}, "rotary_emb_scale_base"),
    ("nomic-authors", {"rotary_scaling_factor": 2}, "rotary_scaling_factor"),
    ("nomic-authors", {"use_rms_norm": True}, "use_rms_norm"),
    ("gte", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ("gte", {"rope_parameters": {"type": "yarn"}}, "type"),
    ("gte", {"rope_scaling": {"type": "ntk", "factor": 2.0}}, "rope_scaling"),
    ("gte-authors", {"layer_norm_type": "rms_norm"}, "layer_norm_type"),
    ("gte-authors", {"logn_attention_scale": True}, "logn_attention_scale"),
    ("gte-authors", {"pack_qkv": False}, "pack_qkv"),
    ("gte-authors", {"position_embedding_type": "absolute"}, "position_embedding_type"),
    ("gte-authors", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type"),
    ("gte-authors", {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}}, "mixed_b"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("jina", {"position_embedding_type": "absolute"}, "position_embedding_type"),
    ("jina", {"is_decoder": True}, "is_decoder"),
    ("jina", {"feed_forward_type": "original"}, "feed_forward_type"),
]


@pytest.mark.parametrize(("name", "changes", "key"), _REFUSED, ids=lambda case: str(case)[:40])
def test_an_option_that_is_not_built_is_named(
    name: str, changes: dict[str, Any], key: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(HERE / name, folder)
    settings = json.loads((folder / CONFIG_FILE).read_bytes())
    (folder / CONFIG_FILE).write_text(json.dumps(settings | changes))
    with pytest.raises(UnsupportedArchitecture, match=rf"{key} = .* is not supported, only "):
        prepare(_job(folder, tmp_path))


def _job(folder: Path, tmp_path: Path) -> PrepareJob:
    return prepare_job(folder, "safetensors", tmp_path / "cache")


def test_a_classifier_without_the_pooler_it_needs_is_a_broken_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(HERE / "gte", folder)
    settings = json.loads((folder / CONFIG_FILE).read_bytes())
    settings["architectures"] = ["GteForSequenceClassification"]
    (folder / CONFIG_FILE).write_text(json.dumps(settings))
    with pytest.raises(ModelFailed, match="the checkpoint has no pooler"):
        prepare(_job(folder, tmp_path))
