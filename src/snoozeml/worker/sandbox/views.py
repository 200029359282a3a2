"""What a confined model may see of the file system."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import snoozeml

_LIBRARIES: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/alternatives")
_FACTS: Final = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",  # this process alone: the link is followed now
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
)
_GPU_FACTS: Final = (
    "/proc/devices",
    "/proc/driver/nvidia",
    "/proc/modules",
    "/sys/bus/pci",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
)
_GPU_DEVICES: Final = Path("/sys/devices")


def readable(folder: Path, device: str) -> list[Path]:
    """What may be read: the model, the libraries, and facts about the machine."""
    facts = (*_FACTS, *_GPU_FACTS) if device != "cpu" else _FACTS
    return [folder, *map(Path, (*_LIBRARIES, *facts)), *_GPU_DEVICES.glob("pci*"), *_python()]


def writable(device: str) -> list[Path]:
    """Devices that may be written to."""
    gpus = Path("/dev").glob("nvidia*") if device != "cpu" else ()
    return [Path("/dev/null"), *gpus]


def _python() -> Iterator[Path]:
    """The interpreter, and what it finds modules in."""
    yield from {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
    yield Path(snoozeml.__file__).parent
    # A relative or empty entry is the working directory, which holds whatever it holds.
    yield from (path for path in map(Path, sys.path) if path.is_absolute())
