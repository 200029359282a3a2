"""Every architecture against what the reference library answered; see tests/golden/safetensors."""

from pathlib import Path

import pytest

from golden.safetensors.compare import FOLDERS, largest_difference
from jobs import prepare_job
from snoozeml.errors import UnsupportedArchitecture
from snoozeml.prepare import packing
from snoozeml.prepare.safetensors.architectures import supported
from snoozeml.prepare.safetensors.configuration import Config
from snoozeml.prepare.safetensors.model import CONFIG_FILE, prepare


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_plan_answers_like_the_reference(folder: Path, tmp_path: Path) -> None:
    assert largest_difference(folder, tmp_path) < 1e-5


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_its_packed_weights_answer_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_WORTH_PACKING_BYTES", 0)
    assert largest_difference(folder, tmp_path, packed=True) < 1e-5


def test_a_small_plan_is_written_once(tmp_path: Path) -> None:
    largest_difference(FOLDERS[0], tmp_path)
    assert list(tmp_path.rglob("plan.onnx"))
    assert not list(tmp_path.rglob("packed*"))


def test_every_architecture_has_a_golden_file() -> None:
    golden = {n for f in FOLDERS for n in Config.read(f / CONFIG_FILE).texts("architectures")}
    assert set(supported()) <= golden


def test_an_unknown_architecture_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text('{"architectures": ["MambaModel"]}')
    (tmp_path / "model.safetensors").write_bytes((FOLDERS[0] / "model.safetensors").read_bytes())
    job = prepare_job(tmp_path, "safetensors", tmp_path / "cache")
    with pytest.raises(UnsupportedArchitecture, match=r"MambaModel is not supported.*BertModel"):
        prepare(job)
