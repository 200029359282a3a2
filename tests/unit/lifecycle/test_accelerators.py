"""What is made of NVML's answers; the library is a stand-in, because there may be no GPU here."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from snoozeml.lifecycle import accelerators
from snoozeml.lifecycle.accelerators import (
    DeviceMemory,
    Nvml,
    device_with_memory,
    visible_devices,
)

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]


class Driver(ModuleType):
    """The part of `pynvml` that is used, over made-up devices; a handle is a device's index."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.is_broken = False
        self.processes: dict[int, list[Any]] = {0: [], 1: [], 2: []}
        self.starts = 0

    def nvmlInit(self) -> None:  # noqa: N802  the library's name
        self.starts += 1
        if self.is_broken:
            raise self.NVMLError("Driver/library version mismatch")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return UUIDS[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=1000 * (handle + 1), free=100 * (handle + 1), used=0)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        if self.is_broken:
            raise self.NVMLError("GPU is lost")
        return self.processes[handle]


def process(pid: int, size: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=size)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(accelerators, "_DRIVER", (tmp_path,))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return driver


@pytest.mark.parametrize(
    ("device", "where"),
    [
        ("cpu", None),
        ("coreml", None),
        ("cuda", "cuda:0"),
        ("cuda:0", "cuda:0"),
        ("cuda:3", "cuda:3"),
        ("tensorrt", "cuda:0"),
    ],
)
def test_which_memory_a_device_has(device: str, where: str | None) -> None:
    assert device_with_memory(device) == where


@pytest.mark.parametrize(
    ("listed", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("1, GPU-bb", [1, 2]),
        ("0,3,1", [0]),
        ("0,-1,1", [0]),
        ("GPU-aa", []),
        ("GPU-aa2", [1]),
        ("MIG-0000", []),
        ("2,NoDevFiles", [2]),
    ],
)
def test_cuda_counts_the_devices_that_it_was_told_to_see(
    listed: str | None, indices: list[int]
) -> None:
    assert visible_devices(listed, UUIDS) == indices


def test_memory_is_that_of_the_device_which_cuda_calls_so(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    nvml = Nvml()
    assert nvml.memory("cuda:0") == DeviceMemory(3000, 300)
    assert nvml.memory("cuda:1") == DeviceMemory(1000, 100)
    assert nvml.memory("cuda:2") is None
    assert driver.starts == 1


def test_what_a_process_takes_is_told_as_far_as_it_is_known(driver: Driver) -> None:
    driver.processes[1] = [process(7, 300), process(8, None), process(9, 1), process(9, 2)]
    nvml = Nvml()
    assert [nvml.taken_bytes("cuda:1", pid) for pid in (7, 8, 9, 10)] == [300, None, 3, None]
    assert nvml.taken_bytes("cuda:0", 7) is None
    assert [nvml.holds(pid) for pid in (7, 8, 10)] == [True, True, False]


def test_a_driver_that_fails_is_told_of_once_and_limits_nobody(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    nvml = Nvml()
    assert nvml.memory("cuda:0") is not None
    driver.is_broken = True
    for _ in range(3):
        assert nvml.taken_bytes("cuda:0", 7) is None
        assert not nvml.holds(7)
    (warning,) = caplog.messages
    assert "GPU is lost" in warning


def test_a_driver_that_does_not_start_is_asked_once(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.is_broken = True
    nvml = Nvml()
    assert nvml.memory("cuda:0") is nvml.memory("cuda:1") is None
    assert driver.starts == 1
    (warning,) = caplog.messages
    assert "version mismatch" in warning


def test_a_gpu_without_the_library_is_told_of_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it fails from now on
    nvml = Nvml()
    assert nvml.memory("cuda:0") is nvml.memory("cuda:0") is None
    (warning,) = caplog.messages
    assert "snoozeml[cuda]" in warning


def test_asking_whether_a_process_holds_memory_starts_no_driver(driver: Driver) -> None:
    assert not Nvml().holds(1)
    assert driver.starts == 0


def test_without_a_driver_nothing_is_imported(tmp_path: Path) -> None:
    check = f"""
import sys
from pathlib import Path
from snoozeml.lifecycle import accelerators
accelerators._DRIVER = (Path({str(tmp_path / "absent")!r}),)
nvml = accelerators.Nvml()
assert nvml.memory("cuda:0") is nvml.taken_bytes("cuda:0", 1) is None
assert not nvml.holds(1)
assert not {{"pynvml", "ctypes"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", check], check=True)
