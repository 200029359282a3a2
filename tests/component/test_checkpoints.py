"""Checkpoints as they come: other names, half types, shards; and those that do not fit."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden.safetensors.compare import HERE, largest_difference
from golden.safetensors.files import read, write
from jobs import prepare_job
from snoozeml.core.plan import Plan
from snoozeml.errors import ModelFailed, UnsupportedArchitecture
from snoozeml.prepare.safetensors.model import CONFIG_FILE, prepare
from snoozeml.wire.tensors import Array

FILE = "model.safetensors"
CLOSE = 1e-5
ROUNDED = {"F16": 2e-3, "BF16": 2e-2}
"""What rounding the weights of a small model to a half type changes, at most."""

Tensors = Mapping[str, Array]


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a golden model's folder, to be changed."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(HERE / name, tmp_path / name))

    return copy


def plan_of(folder: Path, cache_dir: Path) -> Plan:
    job = prepare_job(folder, "safetensors", cache_dir)
    plan = prepare(job).plan
    assert plan is not None
    return plan


def configure(folder: Path, **settings: Any) -> None:
    file = folder / CONFIG_FILE
    file.write_text(json.dumps(json.loads(file.read_bytes()) | settings))


def of_tensorflow(tensors: Tensors) -> Tensors:
    """Names as the oldest checkpoints have them."""
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in tensors.items()
    }


def without_prefix(tensors: Tensors) -> Tensors:
    """The encoder's tensors as if it had been saved alone."""
    return {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}


def with_prefix(tensors: Tensors) -> Tensors:
    """An encoder as part of a model that has a head."""
    return {f"bert.{name}": tensor for name, tensor in tensors.items()}


def with_others(tensors: Tensors) -> Tensors:
    """Buffers of old releases, and heads that the plain model has no use for."""
    others: dict[str, Array] = {
        "embeddings.position_ids": np.arange(16)[None],
        "classifier.weight": np.ones((2, 24), np.float32),
        "cls.predictions.bias": np.ones(40, np.float32),
    }
    return {**tensors, **others}


def without_token_types(tensors: Tensors) -> Tensors:
    """Every word is of the first type then: its row is added to the words."""
    left = dict(tensors)
    left["embeddings.word_embeddings.weight"] = (
        left["embeddings.word_embeddings.weight"]
        + left.pop("embeddings.token_type_embeddings.weight")[0]
    )
    return left


@pytest.mark.parametrize(
    ("name", "rename"),
    [
        ("bert", of_tensorflow),
        ("bert-masked-lm", of_tensorflow),
        ("bert", with_prefix),
        ("bert", with_others),
        ("bert-token-classification", without_prefix),
        ("bert-masked-lm", without_prefix),
    ],
)
def test_the_same_model_is_read_under_other_names(
    golden: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    rename: Callable[[Tensors], Tensors],
) -> None:
    folder = golden(name)
    before = read(folder / FILE)
    write(folder / FILE, after := rename(before))
    assert after.keys() != before.keys()
    assert largest_difference(folder, tmp_path) < CLOSE


def test_a_checkpoint_may_have_words_of_its_own_to_answer_with(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = golden("bert-masked-lm")
    tensors = read(folder / FILE)
    words = tensors["bert.embeddings.word_embeddings.weight"]
    write(folder / FILE, {**tensors, "cls.predictions.decoder.weight": words})
    assert largest_difference(folder, tmp_path) < CLOSE
    write(folder / FILE, {**tensors, "cls.predictions.decoder.weight": 2 * words})
    assert largest_difference(folder, tmp_path) > 0.1


def test_a_model_without_token_types_does_not_ask_for_any(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = golden("electra-not-projected")  # was asked with the first type only
    tensors = read(folder / FILE)
    write(folder / FILE, without_token_types(tensors))
    assert largest_difference(folder, tmp_path) < CLOSE
    inputs = [spec.name for spec in plan_of(folder, tmp_path).signature.inputs]
    assert inputs == ["input_ids", "attention_mask"]


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_types_are_written_beside_the_plan_in_float32(
    golden: Callable[[str], Path], tmp_path: Path, dtype: str
) -> None:
    folder = golden("bert")
    write(folder / FILE, read(folder / FILE), dtype)
    assert CLOSE < largest_difference(folder, tmp_path) < ROUNDED[dtype]
    plan = plan_of(folder, tmp_path)
    assert plan.weights_folder is None
    assert Path(plan.graph).with_name("weights").stat().st_size >= plan.weights_bytes


def test_weights_at_odd_offsets_are_copied(golden: Callable[[str], Path], tmp_path: Path) -> None:
    folder = golden("bert")
    content = (folder / FILE).read_bytes()
    length = int.from_bytes(content[:8], "little")
    (folder / FILE).write_bytes(
        (length + 1).to_bytes(8, "little") + content[8 : 8 + length] + b" " + content[8 + length :]
    )
    assert largest_difference(folder, tmp_path) < CLOSE
    assert plan_of(folder, tmp_path).weights_folder is None


def test_shards_make_one_model(golden: Callable[[str], Path], tmp_path: Path) -> None:
    folder = golden("bert")
    tensors = list(read(folder / FILE).items())
    (folder / FILE).unlink()
    weight_map: dict[str, str] = {}
    for number in range(3):
        shard = f"model-{number}.safetensors"
        write(folder / shard, dict(tensors[number::3]))
        weight_map |= {name: shard for name, _ in tensors[number::3]}
    (folder / f"{FILE}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert largest_difference(folder, tmp_path) < CLOSE
    assert plan_of(folder, tmp_path).weights_folder == str(folder)


MODELS = ("bert", "deberta-v2", "mpnet", "albert")
OPTIONAL = ("pooler", "token_type_embeddings")
"""What a checkpoint may lack as a whole."""


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_tensor_is_named(
    golden: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    folder = golden(name)
    tensors = read(folder / FILE)
    for missing in tensors:
        if any(part in missing for part in OPTIONAL) or missing.endswith("bias"):
            continue
        write(folder / FILE, {other: tensors[other] for other in tensors if other != missing})
        with pytest.raises(ModelFailed, match=f"'{missing}'"):
            plan_of(folder, tmp_path)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("reshape", ["shorter", "longer", "flat", "one"])
def test_a_tensor_of_another_shape_is_named(
    golden: Callable[[str], Path], tmp_path: Path, name: str, reshape: str
) -> None:
    change: dict[str, Callable[[Array], Array]] = {
        "shorter": lambda tensor: tensor[..., :-1],
        "longer": lambda tensor: np.concatenate([tensor, tensor[:1]]),
        "flat": lambda tensor: tensor.reshape(1, -1),
        "one": lambda tensor: tensor.reshape(-1)[:1],
    }
    folder = golden(name)
    tensors = read(folder / FILE)
    unnoticed = []
    for wrong, tensor in tensors.items():
        write(folder / FILE, {**tensors, wrong: change[reshape](tensor)})
        try:
            plan_of(folder, tmp_path)
        except ModelFailed as error:
            if wrong.rpartition(".")[0] not in error.message:
                unnoticed.append((wrong, error.message))
        else:
            unnoticed.append((wrong, "no error"))
    assert not unnoticed


@pytest.mark.parametrize(
    ("name", "settings", "named"),
    [
        ("bert", {"is_decoder": True}, "is_decoder = True"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("bert", {"hidden_act": "mish"}, "'mish'"),
        ("roberta", {"position_embedding_type": "relative_key_query"}, "position_embedding_type"),
        ("electra", {"is_decoder": True}, "is_decoder"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets = 64"),
        ("deberta-v2", {"conv_act": "softsign"}, "'softsign'"),
    ],
)
def test_an_option_that_is_not_built_is_named(
    golden: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    settings: dict[str, Any],
    named: str,
) -> None:
    folder = golden(name)
    configure(folder, **settings)
    with pytest.raises(UnsupportedArchitecture, match=named):
        plan_of(folder, tmp_path)


@pytest.mark.parametrize("name", ["roberta", "deberta-v2", "albert"])
@pytest.mark.parametrize("nonsense", [None, -1, 0, 7, 10**9, 10**40, "x", []])
def test_a_configuration_that_is_nonsense_is_refused(
    golden: Callable[[str], Path], tmp_path: Path, name: str, nonsense: Any
) -> None:
    """Never does it hang, crash, or take all memory; some settings have no influence."""
    folder = golden(name)
    config = json.loads((HERE / name / CONFIG_FILE).read_bytes())
    for key in config:
        (folder / CONFIG_FILE).write_text(json.dumps(config | {key: nonsense}))
        with suppress(ModelFailed, UnsupportedArchitecture):
            plan_of(folder, tmp_path)


@pytest.mark.parametrize("settings", [{"image_size": 50_000}, {"num_channels": 1 << 24}])
def test_an_image_that_would_take_all_memory_is_refused(
    golden: Callable[[str], Path], tmp_path: Path, settings: dict[str, Any]
) -> None:
    folder = golden("vit")
    configure(folder, **settings)
    with pytest.raises(ModelFailed, match="num_channels and image_size ask for images"):
        plan_of(folder, tmp_path)


def test_a_pipe_is_not_opened(golden: Callable[[str], Path], tmp_path: Path) -> None:
    folder = golden("bert")
    (folder / CONFIG_FILE).unlink()
    os.mkfifo(folder / CONFIG_FILE)  # nobody writes to it: opening it would hang
    with pytest.raises(ModelFailed, match=r"^config\.json is not a regular file"):
        plan_of(folder, tmp_path)


@pytest.mark.parametrize("name", ["bert", "clip-text", "siglip-text"])
def test_a_mask_takes_no_values_but_0_and_1(name: str, tmp_path: Path) -> None:
    """The graph asks of a mask in two places, and they would not agree about others."""
    signature = plan_of(HERE / name, tmp_path).signature
    (mask,) = (spec for spec in signature.inputs if spec.name == "attention_mask")
    assert mask.bounds == (0, 2)


def test_a_text_has_a_token_at_least(tmp_path: Path) -> None:
    signature = plan_of(HERE / "bert", tmp_path).signature
    assert signature.inputs[0].min_length == 1


def test_links_to_a_checkpoint_elsewhere_are_followed(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Download tools keep files under the names of their contents, and link to them."""
    folder, store = golden("bert"), tmp_path / "blobs"
    store.mkdir()
    for number, file in enumerate([folder / FILE, folder / CONFIG_FILE]):
        file.rename(store / f"{number}")
        file.symlink_to(f"../blobs/{number}")
    assert largest_difference(folder, tmp_path) < CLOSE
    plan = plan_of(folder, tmp_path)
    shutil.copytree(store, tmp_path / "other")
    (folder / FILE).unlink()
    (folder / FILE).symlink_to("../other/0")
    assert plan_of(folder, tmp_path).weights_folder != plan.weights_folder, "the link leads on"


@pytest.mark.parametrize("name", ["bert", "sentence-dense"])
def test_copies_share_a_plan_and_each_maps_its_own_weights(
    golden: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    folder, cache = golden(name), tmp_path / "cache"
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "copy")
    first, second = plan_of(folder, cache), plan_of(copy, cache)
    assert (first.graph, first.weights_folder) == (second.graph, str(folder))
    assert second.weights_folder == str(copy)
    assert len(list((cache / "plans").iterdir())) == 1
    shutil.rmtree(folder)
    assert largest_difference(copy, cache) < CLOSE


@pytest.mark.parametrize("name", ["bert-sequence-classification", "vit-image-classification"])
def test_classifiers_know_what_their_classes_are_called(
    golden: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    folder = golden(name)
    (logits,) = plan_of(folder, tmp_path / "cache").signature.outputs
    labels = {str(number): f"kind {number}" for number in range(int(str(logits.shape[-1])))}
    configure(folder, id2label=labels)
    assert plan_of(folder, tmp_path / "cache").signature.labels == tuple(labels.values())
    configure(folder, id2label={"0": "only one"})
    assert plan_of(folder, tmp_path / "cache").signature.labels == ()


def test_models_without_classes_have_no_names_for_them(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    assert plan_of(golden("bert"), tmp_path / "cache").signature.labels == ()
