"""A pretrained model as it is published: all-MiniLM-L6-v2, against sentence-transformers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from examples.sample_models import MINILM, unpack

from jobs import prepare_job
from snoozeml.core.plan import Plan, Precision
from snoozeml.prepare.safetensors.model import prepare
from snoozeml.prepare.session import Session, open_plan
from snoozeml.wire.tensors import Array, Tensors

GOLDEN = Path(__file__).parents[1] / "golden" / "minilm.npz"

pytestmark = pytest.mark.timeout(300)  # the first run fetches the model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("models")
    unpack(MINILM, models)
    return models / "minilm"


def made(folder: Path, precision: Precision) -> Plan:
    job = prepare_job(folder, "safetensors", folder.parent / "cache", precision=precision)
    plan = prepare(job).plan
    assert plan is not None
    return plan


@pytest.fixture(scope="module")
def plan(folder: Path) -> Plan:
    return made(folder, "fp32")


@pytest.fixture(scope="module")
def session(plan: Plan) -> Session:
    assert plan.weights_folder is not None
    return open_plan(Path(plan.graph).parent, Path(plan.weights_folder))


@pytest.fixture(scope="module")
def golden() -> Tensors:
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


def embed(session: Session, golden: Tensors, rows: Sequence[int]) -> Array:
    """The embeddings of some of the texts, in one batch as long as the longest of them."""
    mask = golden["attention_mask"][rows].astype(np.int64)
    longest = int(mask.sum(axis=1).max())
    ids = golden["input_ids"][rows, :longest].astype(np.int64)
    inputs = {
        "input_ids": ids,
        "attention_mask": mask[:, :longest],
        "token_type_ids": np.zeros_like(ids),
    }
    (embeddings,) = session.run(["sentence_embedding"], inputs)
    result: Array = embeddings
    return result


def test_every_text_by_itself_is_embedded_like_the_reference(
    session: Session, golden: Tensors
) -> None:
    for row, wanted in enumerate(golden["sentence_embedding"]):
        np.testing.assert_allclose(embed(session, golden, [row])[0], wanted, rtol=0, atol=1e-5)


def test_all_texts_in_one_batch_are_embedded_like_the_reference(
    session: Session, golden: Tensors
) -> None:
    wanted = golden["sentence_embedding"]
    embeddings = embed(session, golden, range(len(wanted)))
    np.testing.assert_allclose(embeddings, wanted, rtol=0, atol=1e-5)


def test_the_weights_stay_where_they_were_published(plan: Plan) -> None:
    assert plan.weights_folder is not None
    assert Path(plan.weights_folder).name == "minilm"
    weights = onnx.load(plan.graph, load_external_data=False).graph.initializer
    outside = [{entry.key: entry.value for entry in tensor.external_data} for tensor in weights]
    assert {place["location"] for place in outside if place} == {"model.safetensors"}
    assert sum(int(place["length"]) for place in outside if place) > 80e6


def test_in_integers_every_embedding_points_nearly_the_same_way(
    folder: Path, golden: Tensors
) -> None:
    plan = made(folder, "int8")
    session = open_plan(Path(plan.graph).parent)
    wanted = golden["sentence_embedding"]
    got = np.concatenate([embed(session, golden, [row]) for row in range(len(wanted))])
    lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(got, axis=1)
    cosines = (wanted * got).sum(axis=1) / lengths
    assert cosines.min() > 0.99, cosines
