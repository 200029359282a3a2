"""Whatever happens to workers, every request gets its right answer, and nothing is left behind."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from e2e.chaos import SETTINGS, Chaos
from e2e.daemon import Daemon
from e2e.zoo import TOLERANCE, Subject, build_zoo, nearest_answers

SECONDS: Final = 15
SIGNALS: Final = {"SIGKILL", "SIGSEGV", "SIGSTOP"}


@pytest.fixture(scope="module")
def zoo_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def zoo(zoo_dir: Path) -> Sequence[Subject]:
    return build_zoo(zoo_dir)


@pytest.fixture(scope="module")
def daemon(zoo: Sequence[Subject], zoo_dir: Path, cache_dir: Path) -> Iterator[Daemon]:
    (zoo_dir / "models.toml").write_text(SETTINGS)
    with Daemon(zoo_dir, cache_dir) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.stderr


@pytest.fixture(scope="module")
def chaos(daemon: Daemon, zoo: Sequence[Subject]) -> Chaos:
    return Chaos(daemon, zoo)


def test_a_wrong_answer_would_be_told_from_the_right_one(zoo: Sequence[Subject]) -> None:
    assert nearest_answers(zoo) > 100 * TOLERANCE


def test_killed_and_hung_workers_cost_nobody_his_answer(
    chaos: Chaos, zoo: Sequence[Subject]
) -> None:
    outcomes = chaos.unleash(SECONDS, seed=1, spoil_loads=False)
    assert outcomes.failures() == []
    assert outcomes.answered.keys() == {subject.model_id for subject in zoo}
    assert outcomes.strikes.keys() == SIGNALS
    assert outcomes.on_busy > 5, "hardly anybody was hit"
    assert chaos.residue() == []


def test_loads_that_fail_cost_only_those_who_waited_for_them(chaos: Chaos) -> None:
    outcomes = chaos.unleash(SECONDS, seed=2, spoil_loads=True)
    assert outcomes.failures() == []
    assert outcomes.answered.total() > 100
    assert outcomes.spoilt > 3
    assert chaos.residue() == []
