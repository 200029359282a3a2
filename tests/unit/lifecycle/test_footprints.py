"""What a worker will take: guessed, learned, remembered, and not believed when it cannot be."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import models
from snoozeml.config.schema import ModelConfig
from snoozeml.core.plan import Origin, PrepareJob
from snoozeml.lifecycle.footprints import Footprints, Learned, expected, guessed, least
from snoozeml.lifecycle.plans import PlanStore, _Record, _write_record
from snoozeml.lifecycle.residency import RAM
from snoozeml.prepare.onnx_model import prepare

MIB = 2**20
WEIGHTS = 100 * MIB
GPU = "cuda:0"


def test_a_model_on_the_cpu_is_guessed_from_its_weights() -> None:
    assert guessed("cpu", WEIGHTS) == {RAM: 132 * MIB}


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "tensorrt"])
def test_a_model_on_a_gpu_has_its_weights_there_and_the_library_on_both_sides(device: str) -> None:
    assert guessed(device, WEIGHTS) == {RAM: 432 * MIB, GPU: 612 * MIB}


def test_what_was_learned_on_one_device_says_nothing_of_another() -> None:
    learned = Learned(taken={"cuda:0": {RAM: 500 * MIB, "cuda:0": 700 * MIB}})
    assert expected(learned, "cuda:0", WEIGHTS) == {RAM: 500 * MIB, "cuda:0": 700 * MIB}
    assert expected(learned, "cuda:1", WEIGHTS) == guessed("cuda:1", WEIGHTS)
    assert expected(learned, "cpu", WEIGHTS) == guessed("cpu", WEIGHTS)


def test_a_worker_that_had_not_read_its_weights_teaches_nothing() -> None:
    learned = Learned(taken={GPU: {RAM: 500 * MIB, GPU: 99 * MIB}})
    assert expected(learned, GPU, WEIGHTS) == {RAM: 500 * MIB, GPU: 612 * MIB}


@given(
    st.sampled_from(["cpu", "cuda", "cuda:1", "tensorrt", "coreml"]),
    st.integers(0, 2**40),
    st.dictionaries(st.sampled_from([RAM, "cuda:0", "cuda:1"]), st.integers(0, 2**41)),
)
def test_nobody_is_expected_to_take_less_than_it_must(
    device: str, weights_bytes: int, taken: dict[str, int]
) -> None:
    floor = least(device, weights_bytes)
    sizes = expected(Learned(taken={device: taken}), device, weights_bytes)
    assert sizes.keys() == floor.keys()
    assert all(sizes[where] >= floor[where] for where in floor)


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def config(tmp_path: Path, cache_dir: Path) -> ModelConfig:
    """A model that has been prepared."""
    path = models.linear_model(tmp_path / "model.onnx")
    plans = store(cache_dir)
    job = PrepareJob(
        model_path=str(path),
        format="onnx",
        toolchain=plans._toolchain,
        cache_dir=str(cache_dir),
        cache_limit_bytes=1 << 30,
    )
    outcome = prepare(job)
    assert outcome.plan is not None
    record = _Record(
        toolchain=plans._toolchain,
        stamps=outcome.stamps,
        plan_stamps=outcome.plan_stamps,
        plan=outcome.plan,
    )
    _write_record(plans.index_file(Origin(path, "onnx")), record)
    return ModelConfig(id="model", path=path, format="onnx", device="auto")


def store(cache_dir: Path) -> PlanStore:
    return PlanStore(cache_dir, 1 << 30)


def test_what_was_learned_outlives_the_daemon(cache_dir: Path, config: ModelConfig) -> None:
    Footprints(store(cache_dir)).learn(config, "cpu", {RAM: 77 * MIB})
    assert Footprints(store(cache_dir)).expected(config) == {RAM: 77 * MIB}


def test_where_auto_leads_is_known_after_the_first_load(
    cache_dir: Path, config: ModelConfig
) -> None:
    footprints = Footprints(store(cache_dir))
    assert footprints.expected(config).keys() == {RAM}
    footprints.learn(config, "cuda:1", {})
    again = Footprints(store(cache_dir))
    assert again.expected(config).keys() == {RAM, "cuda:1"}
    assert again.least(config).keys() == {RAM, "cuda:1"}
    assert again.expected(replace(config, device="cuda")).keys() == {RAM, "cuda:0"}
    assert again.expected(replace(config, device="cpu")).keys() == {RAM}
    assert again.expected(replace(config, device="cuda:2")).keys() == {RAM, "cuda:2"}


def test_figures_come_one_by_one(cache_dir: Path, config: ModelConfig) -> None:
    footprints = Footprints(store(cache_dir))
    footprints.learn(config, GPU, {GPU: 900 * MIB})
    footprints.learn(config, GPU, {RAM: 600 * MIB})
    assert footprints.expected(config) == {RAM: 600 * MIB, GPU: 900 * MIB}


def test_small_changes_are_not_written(cache_dir: Path, config: ModelConfig) -> None:
    footprints = Footprints(store(cache_dir))
    for size, on_disk in ((100, 100), (105, 100), (120, 120)):
        footprints.learn(config, "cpu", {RAM: size * MIB})
        assert footprints.expected(config) == {RAM: size * MIB}
        assert Footprints(store(cache_dir)).expected(config) == {RAM: on_disk * MIB}


def test_a_file_of_another_version_or_none_at_all_is_no_obstacle(
    cache_dir: Path, config: ModelConfig
) -> None:
    (index,) = cache_dir.glob("index/*.json")
    index.with_suffix(".memory").write_text("123456")
    footprints = Footprints(store(cache_dir))
    guess = footprints.expected(config)
    shutil.rmtree(index.parent)
    footprints.learn(config, "cpu", {RAM: 99 * MIB})
    assert Footprints(store(cache_dir)).expected(config)[RAM] >= 32 * MIB
    assert guess[RAM] >= 32 * MIB
