import pytest
from msgspec.structs import replace

from snoozeml.core.plan import Plan
from snoozeml.core.tensors import Signature
from snoozeml.lifecycle.cpu import engine_threads, quota_cores, usable_cores

PLAN = Plan(
    format="onnx",
    graph="/plan.onnx",
    prepared=True,
    signature=Signature((), ()),
    batching="merge",
    weights_bytes=0,
)


@pytest.mark.parametrize(
    ("asked", "row_s", "threads"),
    [(0, None, 8), (0, 0.01, 8), (0, 0.00002, 1), (3, 0.00002, 3), (3, None, 3)],
)
def test_threads_follow_the_setting_then_the_size_of_the_work(
    asked: int, row_s: float | None, threads: int
) -> None:
    assert engine_threads(asked, replace(PLAN, row_s=row_s), cores=8) == threads


def test_sums_that_depend_on_the_threads_are_made_by_one() -> None:
    assert engine_threads(3, replace(PLAN, row_s=0.01, one_thread=True), cores=8) == 1


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [("max 100000", None), ("150000 100000", 1.5), ("50000 100000", 0.5)],
)
def test_cgroup_quota_is_read_in_cores(cpu_max: str, cores: float | None) -> None:
    assert quota_cores(cpu_max) == cores


def test_at_least_one_core_is_usable() -> None:
    assert usable_cores() >= 1
