"""GPUs that this machine need not have."""

import time

from snoozeml.lifecycle.accelerators import DeviceMemory


class FakeAccelerators:
    """Devices whose memory is taken as a test says.

    Attributes:
        taken: device → process → what it takes. A process is held to be on the device until
            the test takes it out.
        others_bytes: what is taken of each device besides.
        is_asked: somebody has looked.
    """

    def __init__(self, **total_bytes: int) -> None:
        self._total = {f"cuda:{name[3:]}": size for name, size in total_bytes.items()}
        self.taken: dict[str, dict[int, int | None]] = {device: {} for device in self._total}
        self.others_bytes = 0
        self.is_asked = False
        self.forgets_at: dict[int, float] = {}

    def memory(self, device: str) -> DeviceMemory | None:
        self.is_asked = True
        if device not in self._total:
            return None
        total, taken = self._total[device], sum(size or 0 for size in self._live(device).values())
        return DeviceMemory(total, total - taken - self.others_bytes)

    def taken_bytes(self, device: str, pid: int) -> int | None:
        self.is_asked = True
        return self._live(device).get(pid)

    def holds(self, pid: int) -> bool:
        return any(pid in self._live(device) for device in self.taken)

    def _live(self, device: str) -> dict[int, int | None]:
        now = time.monotonic()
        on_device = self.taken.get(device, {})
        return {p: size for p, size in on_device.items() if now < self.forgets_at.get(p, now + 1)}
