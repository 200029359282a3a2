"""How much memory a worker of a model will take: learned from earlier ones, else guessed.

What was learned lies beside the plan, because it outlives the daemon.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from snoozeml.config.schema import ModelConfig
from snoozeml.lifecycle.accelerators import device_with_memory
from snoozeml.lifecycle.plans import PlanStore
from snoozeml.lifecycle.residency import RAM, Sizes

_SUFFIX: Final = ".memory"
_WORTH_WRITING: Final = 0.1  # change, as a share, below which a figure stays as it is on disk

_LEAST_BYTES: Final = 8 * 2**20
_WORKER_BYTES: Final = 32 * 2**20
"""What a worker takes beside its weights: interpreter, numpy and engine, as far as not shared."""

_CUDA_BYTES: Final = {"device": 512 * 2**20, "host": 400 * 2**20}
"""What CUDA and its libraries take for each process, on either side of the bus, before any weight:
users of ONNX Runtime report 320 MB and 400 MB."""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier workers of a model have taught.

    Attributes:
        auto_device: where the model ran when it was told to choose for itself.
        taken: what a worker took, by the device it ran on.
    """

    auto_device: str | None = None
    taken: Mapping[str, Sizes] = {}

    def device_for(self, asked: str) -> str:
        """Where a model will run, in a worker's words; the CPU as long as nobody knows better."""
        if asked == "auto":
            return self.auto_device or "cpu"
        return "cuda:0" if asked == "cuda" else asked


def guessed(device: str, weights_bytes: int) -> dict[str, int]:
    """What a worker may take that nobody has seen yet."""
    where = device_with_memory(device)
    if where is None:
        return {RAM: _WORKER_BYTES + weights_bytes}
    return {
        RAM: _WORKER_BYTES + _CUDA_BYTES["host"],
        where: _CUDA_BYTES["device"] + weights_bytes,
    }


def least(device: str, weights_bytes: int) -> dict[str, int]:
    """What no worker can do without; whoever took less had not read its weights."""
    where = device_with_memory(device)
    if where is None:
        return {RAM: _LEAST_BYTES + weights_bytes}
    return {RAM: _LEAST_BYTES, where: weights_bytes}


def expected(learned: Learned, device: str, weights_bytes: int) -> dict[str, int]:
    """What a worker will take on a device: what one took before, as far as that can be true."""
    seen, floor = learned.taken.get(device, {}), least(device, weights_bytes)
    return {
        where: seen[where] if seen.get(where, -1) >= floor[where] else guess
        for where, guess in guessed(device, weights_bytes).items()
    }


class Footprints:
    """Knows and learns what workers take."""

    def __init__(self, plans: PlanStore) -> None:
        self._plans = plans
        self._learned: dict[Path, Learned] = {}

    def expected(self, config: ModelConfig) -> dict[str, int]:
        """What a worker of this model will take of each memory."""
        learned = self._of(config)
        return expected(learned, learned.device_for(config.device), self._weights_bytes(config))

    def least(self, config: ModelConfig) -> dict[str, int]:
        """What a worker of this model cannot do without."""
        device = self._of(config).device_for(config.device)
        return least(device, self._weights_bytes(config))

    def learn(self, config: ModelConfig, device: str, taken: Sizes) -> None:
        """Remember where a worker ran, and what it took, if anything is known of that yet."""
        before = self._of(config)
        after = Learned(
            auto_device=device if config.device == "auto" else before.auto_device,
            taken={**before.taken, device: {**before.taken.get(device, {}), **taken}},
        )
        file = self._file(config)
        self._learned[file] = after
        if _is_news(before, after, device):
            with suppress(OSError):  # it is learned again after the next start
                file.write_bytes(msgspec.json.encode(after))

    def _of(self, config: ModelConfig) -> Learned:
        """What is known of the model's present content, which is nothing before it has a plan."""
        if self._plans.known(config.origin) is None:
            return Learned()
        file = self._file(config)
        if file not in self._learned:
            self._learned[file] = _read(file)
        return self._learned[file]

    def _file(self, config: ModelConfig) -> Path:
        return self._plans.index_file(config.origin).with_suffix(_SUFFIX)

    def _weights_bytes(self, config: ModelConfig) -> int:
        plan = self._plans.known(config.origin)
        if plan is not None:
            return plan.weights_bytes
        try:
            return sum(file.stat().st_size for file in _weights_of(config.path))
        except OSError:
            return 0  # loading it will say what is wrong


def _weights_of(model_path: Path) -> list[Path]:
    """The files that a model's size is guessed from before it has been prepared."""
    if not model_path.is_dir():
        return [model_path]
    files = [file for file in model_path.iterdir() if file.is_file()]
    return [file for file in files if file.suffix == ".safetensors"] or files


def _is_news(before: Learned, after: Learned, device: str) -> bool:
    old, new = before.taken.get(device, {}), after.taken[device]
    return (
        before.auto_device != after.auto_device
        or old.keys() != new.keys()
        or any(abs(old[where] - size) > old[where] * _WORTH_WRITING for where, size in new.items())
    )


def _read(file: Path) -> Learned:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Learned)
    except (OSError, msgspec.MsgspecError):
        return Learned()
