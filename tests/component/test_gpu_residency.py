"""Real worker processes on GPUs that are made up: who is admitted, evicted, and waited for.

There is no GPU here. The workers run on the CPU and report a GPU; the driver's accounts are a
fake's, which goes by the processes that live.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import models
from snoozeml.config.loading import ConfigError
from snoozeml.config.schema import ModelConfig
from snoozeml.errors import OutOfMemory
from snoozeml.lifecycle.accelerators import DeviceMemory
from snoozeml.lifecycle.actor import ModelActor
from snoozeml.lifecycle.crew import Surroundings
from snoozeml.lifecycle.footprints import Footprints
from snoozeml.lifecycle.memory import OomWatch
from snoozeml.lifecycle.plans import PlanStore
from snoozeml.lifecycle.pools import Pools
from snoozeml.lifecycle.process import ExecProcess, Process, exec_python
from snoozeml.lifecycle.registry import Registry, check_pinned
from snoozeml.lifecycle.steward import Steward
from snoozeml.telemetry.metrics import Totals

GIB = 2**30
GPU = "cuda:0"
LINGER_S = 0.2
"""How long the driver takes to clean up after a process."""


class Gpu:
    """One GPU, and the launcher of the workers that take its memory.

    Attributes:
        sizes: what each model takes.
        overcommitted: models that were launched while there was not enough memory for them.
        is_mute: the driver tells of processes only that they are there, as in some containers.
    """

    def __init__(self, total_bytes: int, **sizes: int) -> None:
        self.total_bytes = total_bytes
        self.sizes = sizes
        self.overcommitted: list[str] = []
        self.is_mute = False
        self._models: dict[int, str] = {}
        self._gone_at: dict[int, float] = {}

    # As the driver

    def memory(self, device: str) -> DeviceMemory | None:
        if device != GPU:
            return None
        taken = sum(self.sizes[self._models[pid]] for pid in self._models if self.holds(pid))
        return DeviceMemory(self.total_bytes, self.total_bytes - taken)

    def taken_bytes(self, device: str, pid: int) -> int | None:
        known = device == GPU and self.holds(pid) and not self.is_mute
        return self.sizes[self._models[pid]] if known else None

    def holds(self, pid: int) -> bool:
        if pid not in self._models:
            return False
        if _is_alive(pid):
            return True
        return time.monotonic() < self._gone_at.setdefault(pid, time.monotonic()) + LINGER_S

    # As the launcher

    async def launch(self, name: str) -> Process:
        memory = self.memory(GPU)
        assert memory is not None
        if memory.free_bytes < self.sizes[name]:
            self.overcommitted.append(name)
        process = ExecProcess(*await exec_python("component.gpu_worker", name=name))
        self._models[process.pid] = name
        return process

    async def warm_up(self) -> None: ...

    async def close(self) -> None: ...


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class House:
    """A registry of models that take `gpu`'s memory."""

    def __init__(self, gpu: Gpu, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self._folder = folder
        plans = PlanStore(folder / "cache", GIB)
        self.pools = Pools(memory_bytes=100 * GIB, max_vram="80%", accelerators=gpu)
        self.footprints = Footprints(plans)
        steward = Steward(
            lambda: self.registry.tenants(), models=8, pools=self.pools, loads_at_once=1
        )
        around = Surroundings(
            plans, self.footprints, gpu, steward, tasks, Totals(), OomWatch(), cores=1
        )
        self.registry = Registry(around)

    def serve(self, *names: str, device: str = "cuda") -> None:
        self.registry.apply(self.config(name, device) for name in names)

    def config(self, name: str, device: str = "cuda") -> ModelConfig:
        path = self._folder / f"{name}.onnx"
        if not path.exists():
            models.identity_model(path)
        return ModelConfig(
            id=name, path=path, format="onnx", device=device, min_residency_secs=0, max_replicas=1
        )

    def __getitem__(self, name: str) -> ModelActor:
        return self.registry.get(name)

    async def use(self, name: str) -> None:
        await self[name].load()
        self[name].last_accessed = time.monotonic()

    async def meet(self, *names: str) -> None:
        """Load each alone, so that what it takes is known."""
        for name in names:
            await self.use(name)
            await self[name].unload()

    def awake(self) -> set[str]:
        return {actor.config.id for actor in self.registry if actor.public_state == "ready"}


@pytest.fixture(autouse=True)
def tests_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = Path(__file__).parents[1]
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    )


@asynccontextmanager
async def house(gpu: Gpu, folder: Path) -> AsyncIterator[House]:
    async with asyncio.timeout(50), asyncio.TaskGroup() as tasks:
        made = House(gpu, folder, tasks)
        yield made
        await made.registry.close()


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  nobody is told of what is awaited here
            await asyncio.sleep(0.01)


def test_the_longest_unused_leaves_the_gpu_and_nobody_starts_before_its_memory_is_back(
    tmp_path: Path,
) -> None:
    gpu = Gpu(10 * GIB, a=3 * GIB, b=4 * GIB, c=3 * GIB)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a", "b", "c")
            await made.meet("a", "b", "c")
            for name in ("a", "b"):
                await made.use(name)
            assert made["b"].crew.vram_bytes() == 4 * GIB
            await made.use("c")  # 3 + 4 + 3 GiB are more than 80 % of 10
            assert made.awake() == {"b", "c"}
            assert made["a"].crew.vram_bytes() == 0
            await made.use("a")
            assert made.awake() == {"a", "c"}
        assert gpu.overcommitted == []

    asyncio.run(scene())


def test_unload_is_answered_when_the_driver_has_the_memory_back(tmp_path: Path) -> None:
    gpu = Gpu(10 * GIB, a=3 * GIB)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a")
            await made.use("a")
            started = time.monotonic()
            await made["a"].unload()
            assert time.monotonic() - started >= LINGER_S
            assert gpu.memory(GPU) == DeviceMemory(10 * GIB, 10 * GIB)

    asyncio.run(scene())


def test_a_killed_worker_is_replaced_when_its_memory_is_back(tmp_path: Path) -> None:
    gpu = Gpu(10 * GIB, a=7 * GIB)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a")
            await made["a"].pin()
            os.kill(made["a"].crew.worker(1).pid, signal.SIGKILL)
            await eventually(lambda: made["a"].crew.loads == 2)
            assert gpu.overcommitted == []

    asyncio.run(scene())


def test_where_auto_leads_is_learned_and_counts_from_then_on(tmp_path: Path) -> None:
    gpu = Gpu(10 * GIB, a=5 * GIB, b=5 * GIB)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a", "b", device="auto")
            await made.meet("a", "b")
            assert made.footprints.expected(made["a"].config)[GPU] == 5 * GIB
            await made.use("a")
            await made.use("b")
            assert made.awake() == {"b"}

    asyncio.run(scene())


def test_a_model_that_took_more_than_there_is_now_tries_to_get_along(tmp_path: Path) -> None:
    gpu = Gpu(10 * GIB, a=8 * GIB)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a")
            await made.meet("a")
            gpu.total_bytes = 9 * GIB
            await made.use("a")
            assert made.awake() == {"a"}

    asyncio.run(scene())


def test_a_model_whose_weights_are_more_than_the_gpu_allows_is_refused(tmp_path: Path) -> None:
    gpu = Gpu(10, a=0)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a")
            with pytest.raises(OutOfMemory, match=r"more than the 0 MiB .* \(max_vram of cuda:0\)"):
                await made.use("a")

    asyncio.run(scene())


def test_whoever_wants_a_gpu_that_others_have_filled_is_told_which(tmp_path: Path) -> None:
    gpu = Gpu(10 * GIB, busy=5 * GIB, a=5 * GIB)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("busy", "a")
            await made.meet("a")
            await made["busy"].pin()
            with pytest.raises(OutOfMemory) as refusal:
                await made.use("a")
            assert "5120 MiB of the 8192 MiB that all models" in refusal.value.message
            assert "(max_vram of cuda:0)" in refusal.value.message
            made["busy"].unpin()
            await made.use("a")
            assert made.awake() == {"a"}

    asyncio.run(scene())


def test_a_driver_that_tells_nothing_of_processes_counts_what_was_expected(tmp_path: Path) -> None:
    gpu = Gpu(2 * GIB, a=GIB // 2, b=GIB // 2, c=GIB // 2, d=GIB // 2)
    gpu.is_mute = True

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a", "b", "c", "d")
            for name in ("a", "b", "c", "d"):
                await made.use(name)
            # Each is guessed to take 512 MiB, of which three are within 80 % of 2 GiB.
            assert made.awake() == {"b", "c", "d"}
            assert made["b"].crew.vram_bytes() is None

    asyncio.run(scene())


def test_pinned_models_that_do_not_fit_the_gpu_together_are_refused(tmp_path: Path) -> None:
    gpu = Gpu(10 * GIB, a=5 * GIB, b=5 * GIB)

    async def scene() -> None:
        async with house(gpu, tmp_path) as made:
            made.serve("a", "b")
            await made.meet("a", "b")
            pinned = [
                ModelConfig(
                    id=name,
                    path=tmp_path / f"{name}.onnx",
                    format="onnx",
                    device=device,
                    pinned=True,
                )
                for name, device in (("a", "cuda"), ("b", "cuda:0"), ("on-the-cpu", "cpu"))
            ]
            with pytest.raises(ConfigError, match=r"max_vram of cuda:0 is 8192 MiB: a, b; raise"):
                check_pinned(pinned, made.footprints, made.pools, models=8)

    asyncio.run(scene())
