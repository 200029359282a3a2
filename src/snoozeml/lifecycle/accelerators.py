"""Devices with memory of their own, as their driver counts it.

The only module that knows NVIDIA's library. It is loaded when a model first asks about such a
device, and only where there is a driver: an idle daemon without a GPU never pays for it.
"""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

_log = logging.getLogger("snoozeml.memory")

T = TypeVar("T")

_DRIVER: Final = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Where a driver shows itself; the last one is that of the Windows Subsystem for Linux."""


class DeviceMemory(NamedTuple):
    total_bytes: int
    free_bytes: int


class Accelerators(Protocol):
    """The devices, called as CUDA counts them: `cuda:0`, `cuda:1`, …"""

    def memory(self, device: str) -> DeviceMemory | None:
        """What a device has; None: there is no such device, or nobody says."""

    def taken_bytes(self, device: str, pid: int) -> int | None:
        """What a process takes of a device's memory; None: nobody says."""

    def holds(self, pid: int) -> bool:
        """Whether a process is known to take memory of any device."""


def device_with_memory(device: str) -> str | None:
    """The device whose own memory is taken by a model that runs on `device`; None: there is none.

    Args:
        device: as in the configuration or in a worker's report, but not `auto`.
    """
    kind, _, index = device.partition(":")
    return f"cuda:{index or 0}" if kind in ("cuda", "tensorrt") else None


def visible_devices(listed: str | None, uuids: Sequence[str]) -> list[int]:
    """Which of the machine's devices CUDA shows, in the order of CUDA's numbers.

    Args:
        listed: what CUDA_VISIBLE_DEVICES says: numbers or beginnings of UUIDs; the first that names
            no device ends the list. None: it is not set.
        uuids: of all devices, in the order of the PCI bus.
    """
    if listed is None:
        return list(range(len(uuids)))
    visible: list[int] = []
    for name in listed.split(","):
        meant = _meant(name.strip(), uuids)
        if meant is None:
            break
        visible.append(meant)
    return visible


def _meant(name: str, uuids: Sequence[str]) -> int | None:
    if name.isdecimal():
        return int(name) if int(name) < len(uuids) else None
    matches = [index for index, uuid in enumerate(uuids) if name and uuid.startswith(name)]
    return matches[0] if len(matches) == 1 else None


class Nvml:
    """The devices that NVIDIA's management library knows.

    It answers nothing where there is no driver, where `nvidia-ml-py` is not installed, for parts of
    a device (MIG), and about processes in a container that has process numbers of its own.
    """

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: dict[str, Any] = {}
        self._is_tried = False
        self._is_broken = False

    def memory(self, device: str) -> DeviceMemory | None:
        self._open()
        if device not in self._handles:
            return None
        found = self._ask(lambda: self._library.nvmlDeviceGetMemoryInfo(self._handles[device]))
        return None if found is None else DeviceMemory(found.total, found.free)

    def taken_bytes(self, device: str, pid: int) -> int | None:
        self._open()
        sizes = [found.usedGpuMemory for found in self._processes(device) if found.pid == pid]
        return sum(sizes) if sizes and None not in sizes else None

    def holds(self, pid: int) -> bool:
        # Nothing is opened for this: who has never asked for memory waits for none.
        return any(
            found.pid == pid for device in self._handles for found in self._processes(device)
        )

    def _processes(self, device: str) -> Sequence[Any]:
        handle = self._handles.get(device)
        if handle is None:
            return ()
        return self._ask(lambda: self._library.nvmlDeviceGetComputeRunningProcesses(handle)) or ()

    def _open(self) -> None:
        """Load the library, once; without a driver, look for one again the next time."""
        if self._is_tried or not any(path.exists() for path in _DRIVER):
            return
        self._is_tried = True
        try:
            import pynvml
        except ImportError:
            _log.warning("there is a GPU, but its memory is not counted: that needs snoozeml[cuda]")
            return
        self._library = pynvml
        self._handles = self._ask(self._find) or {}

    def _find(self) -> dict[str, Any]:
        library = self._library
        library.nvmlInit()
        handles = [
            library.nvmlDeviceGetHandleByIndex(index)
            for index in range(library.nvmlDeviceGetCount())
        ]
        uuids = [library.nvmlDeviceGetUUID(handle) for handle in handles]
        shown = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
        return {f"cuda:{number}": handles[index] for number, index in enumerate(shown)}

    def _ask(self, question: Callable[[], T]) -> T | None:
        """The library's answer; None if it has none, which is said once."""
        try:
            return question()
        except self._library.NVMLError as error:
            if not self._is_broken:
                self._is_broken = True
                _log.warning(
                    "the GPU's memory is not counted as it should be: NVML says: %s", error
                )
            return None
