"""What ONNX Runtime is asked to open, and how, on devices that this machine need not have."""

from pathlib import Path
from typing import Any, NamedTuple

import onnxruntime
import pytest
from msgspec.structs import replace

from component import harness
from snoozeml.core.plan import WorkerSpec
from snoozeml.core.tensors import Signature
from snoozeml.errors import ModelFailed
from snoozeml.worker.engines import onnx

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


class Opened(NamedTuple):
    """A session as the stand-in for ONNX Runtime was asked for it."""

    file: str
    is_optimised_now: bool
    providers: list[Any]


class Stub:
    """ONNX Runtime with the providers of another machine.

    Args:
        started: the provider that sessions have in the end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, available: list[str], started: str) -> None:
        self.opened: list[Opened] = []
        self._started = started
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
        monkeypatch.setattr(onnxruntime, "InferenceSession", self._open_anywhere)
        monkeypatch.setattr(onnx, "_open_on_cpu", self._open_on_cpu)

    def _open_anywhere(self, graph: str, options: Any, providers: list[Any]) -> Any:
        self.opened.append(Opened(Path(graph).name, _optimises(options), providers))
        return _Session(self._started)

    def _open_on_cpu(self, graph: str, options: Any, niceness: int) -> Any:
        self.opened.append(Opened(Path(graph).name, _optimises(options), [CPU]))
        return _Session(CPU)


class _Session:
    def __init__(self, provider: str) -> None:
        self._sess = self
        self._provider = provider

    def get_providers(self) -> list[str]:
        return [self._provider]

    def run(self) -> None: ...


def _optimises(options: Any) -> bool:
    return bool(
        options.graph_optimization_level != onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )


def spec(device: str) -> WorkerSpec:
    """A prepared model whose plan and original can be told apart."""
    made = harness.spec(
        Signature((), ()), "/p/plan.onnx", prepared=True, packed=True, device=device
    )
    return replace(made, plan=replace(made.plan, source="/m/original.onnx"))


def test_the_cpu_runs_the_plan_as_it_was_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = Stub(monkeypatch, [CPU], CPU)
    assert onnx.OnnxEngine(spec("auto")).is_packable
    assert stub.opened == [Opened("plan.onnx", False, [CPU])]


@pytest.mark.parametrize(
    ("asked", "device", "options"),
    [
        ("auto", "cuda:0", {}),
        ("cuda", "cuda:0", {}),
        ("cuda:1", "cuda:1", {"device_id": "1"}),
    ],
)
def test_an_accelerator_runs_the_original_and_optimises_it_for_itself(
    monkeypatch: pytest.MonkeyPatch, asked: str, device: str, options: dict[str, str]
) -> None:
    stub = Stub(monkeypatch, [CUDA, CPU], CUDA)
    engine = onnx.OnnxEngine(spec(asked))
    assert (engine.device, engine.is_packable) == (device, False)
    assert stub.opened == [Opened("original.onnx", True, [(CUDA, options), CPU])]


def test_auto_runs_the_plan_where_the_accelerator_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stub = Stub(monkeypatch, [CUDA, CPU], CPU)
    engine = onnx.OnnxEngine(spec("auto"))
    engine.pack()
    assert (engine.device, engine.is_packable) == ("cpu", True)
    assert [opened.file for opened in stub.opened] == ["original.onnx", "plan.onnx", "plan.onnx"]


def test_a_device_that_was_asked_for_by_name_is_had_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Stub(monkeypatch, [CUDA, CPU], CPU)
    with pytest.raises(ModelFailed, match=r"'cuda' could not be started; it needs onnxruntime-gpu"):
        onnx.OnnxEngine(spec("cuda"))
