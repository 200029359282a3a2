"""What large requests have taken is given back once they are answered."""

from pathlib import Path
from typing import Final

import pytest

import models
from e2e import processes
from e2e.client import tensor
from e2e.conftest import Serve
from e2e.eventually import eventually
from python_models import python_model

_MIB: Final = 2**20
_MAY_KEEP_BYTES: Final = 12 * _MIB
_VALUES: Final = {"floats": b"1.5", "integers": b"1", "slow": b"null"}


@pytest.mark.parametrize("value", _VALUES.values(), ids=list(_VALUES))
@pytest.mark.parametrize("mib", [3, 16])
def test_memory_comes_back_after_large_requests(
    serve: Serve, models_dir: Path, value: bytes, mib: int
) -> None:
    models.identity_model(models_dir / "echo.onnx")
    daemon = serve()
    small = tensor("x", [1, 2], [1, 2])
    for _ in range(3):
        assert daemon.infer("echo", small).status == 200
    both = [daemon.pid, daemon.worker()]
    before = list(map(processes.resident_bytes, both))

    count = mib * _MIB // (len(value) + 1)
    data = b",".join([value] * count)
    body = b'{"inputs":[{"name":"x","shape":[1,%d],"data":[%b]}]}' % (count, data)
    for _ in range(2):
        reply = daemon.request("POST", "/v1/models/echo/infer", body)
        assert reply.status == 200, reply.body[:500]
    del reply

    def kept() -> list[int]:
        daemon.infer("echo", small)  # it need not be quiet
        return [processes.resident_bytes(pid) - was for pid, was in zip(both, before, strict=True)]

    eventually(lambda: max(kept()) < _MAY_KEEP_BYTES, "both have given memory back")


def test_memory_comes_back_after_large_answers(serve: Serve, models_dir: Path) -> None:
    grow = 'return {"y": np.zeros((len(inputs["n"]), int(inputs["n"].max())), np.float32)}'
    python_model(models_dir / "grow", grow, head="import numpy as np")
    daemon = serve()

    def ask(count: int) -> None:
        assert daemon.infer("grow", tensor("n", [1, 1], [count])).status == 200

    ask(1)
    both = [daemon.pid, daemon.worker()]
    before = list(map(processes.resident_bytes, both))
    for mib in (1, 3, 10, 20):
        ask(mib * _MIB // 4)

    def kept() -> list[int]:
        ask(1)
        return [processes.resident_bytes(pid) - was for pid, was in zip(both, before, strict=True)]

    eventually(lambda: max(kept()) < _MAY_KEEP_BYTES, "both have given memory back")
