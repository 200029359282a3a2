"""Python code as an engine."""

import os
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from snoozeml.core.manifest import Manifest
from snoozeml.core.plan import WorkerSpec
from snoozeml.errors import InvalidInput
from snoozeml.wire.json_values import strings
from snoozeml.wire.raw import as_bytes
from snoozeml.wire.tensors import Array, Tensors
from snoozeml.worker import relatives
from snoozeml.worker.engines.python import guest
from snoozeml.worker.engines.python.child import Child
from snoozeml.worker.engines.python.failures import fail
from snoozeml.worker.engines.python.outputs import Outputs


class Runtime(Protocol):
    """Where the model's code runs."""

    def run(self, inputs: Tensors) -> Tensors:
        """Call `predict`; raises SnoozeError."""


class PythonEngine:
    """A Python model; see docs/python-models.md for what it is promised.

    Raises:
        ModelFailed: it cannot be loaded; the traceback is on standard error.
        OutOfMemory: there is not enough memory for it.
    """

    is_packable: Final = False

    def __init__(self, spec: WorkerSpec) -> None:
        manifest = spec.plan.manifest
        assert manifest is not None
        relatives.expect()
        # What is not there cannot be found out without the libraries that the code may use.
        self.device: Final = "cpu" if spec.device == "auto" else spec.device
        self._fit: Final = _fitting(manifest)
        self._outputs: Final = Outputs(spec.plan.signature)
        self._runtime: Final = _runtime(spec, manifest, self.device)

    def infer(self, inputs: Tensors, outputs: Sequence[str]) -> Sequence[Array]:
        given = {name: self._fit(name, array) for name, array in inputs.items()}
        return self._outputs.pick(self._runtime.run(given), outputs)

    def pack(self) -> None:
        """There is nothing to pack."""


class Inside:
    """Runs the code in this process."""

    def __init__(self, manifest: Manifest, folder: Path, device: str, threads: int) -> None:
        self._folder: Final = str(folder)
        self._is_raw: Final = manifest.tensor_format == "raw"
        # Libraries that come with the code read the variables; numpy has been loaded, with one.
        os.environ.update(_thread_variables(threads))
        threadpool_limits(threads)
        try:
            self._model: Final = guest.load_model(
                self._folder, manifest.entrypoint, manifest.class_name, device
            )
        except BaseException as error:  # sys.exit included: it is the model's end, not ours
            fail(guest.loading_failure(error, self._folder), while_loading=True)

    def run(self, inputs: Tensors) -> Tensors:
        try:
            if self._is_raw:
                return _from_raw(guest.predict(self._model, _raw(inputs)))
            outputs = guest.predict(self._model, dict(inputs))
            return {name: guest.to_array(name, value) for name, value in outputs.items()}
        except BaseException as error:  # here, too
            fail(guest.running_failure(error, self._folder, inputs))


class Apart:
    """Runs the code in a process beside this one: another interpreter, or other variables.

    Args:
        confine: what the process does before it becomes the interpreter.
    """

    def __init__(
        self,
        manifest: Manifest,
        folder: Path,
        device: str,
        threads: int,
        confine: Callable[[], None] | None = None,
    ) -> None:
        interpreter = manifest.interpreter(folder, sys.executable)
        env = {**os.environ, **_thread_variables(threads)}
        if interpreter != sys.executable:  # what ours finds its modules by is of no use to it
            env = {key: env[key] for key in env if key not in ("PYTHONPATH", "PYTHONHOME")}
        self._child: Final = Child(
            interpreter, manifest.python or "python", {**env, **manifest.env}, confine
        )
        order = {
            "folder": str(folder),
            "entrypoint": manifest.entrypoint,
            "class": manifest.class_name,
            "device": device,
            "raw": manifest.tensor_format == "raw",
            "bytes": manifest.bytes_as == "bytes",
        }
        self._child.ask(order, {}, loads=True)

    def run(self, inputs: Tensors) -> Tensors:
        tensors = {name: guest.pack_array(array) for name, array in inputs.items()}
        outputs = self._child.ask({}, tensors)
        return {name: guest.unpack_array(tensor) for name, tensor in outputs.items()}


def _runtime(spec: WorkerSpec, manifest: Manifest, device: str) -> Runtime:
    folder = Path(spec.plan.graph)
    if spec.sandbox is not None:
        from snoozeml.worker.sandbox import lock_in

        confine = partial(lock_in, spec.sandbox, folder, device)
        return Apart(manifest, folder, device, spec.threads, confine)
    kind = Apart if manifest.runs_apart else Inside
    return kind(manifest, folder, device, spec.threads)


def _thread_variables(threads: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def _fitting(manifest: Manifest) -> Callable[[str, Array], Array]:
    """What makes an input, by its name, as the code wants it."""
    if manifest.tensor_format == "raw":
        return _to_float
    return _as_bytes if manifest.bytes_as == "bytes" else _writable


def _as_bytes(name: str, given: Array) -> Array:
    """Text comes from JSON, and may share a batch with bytes that came as such."""
    if not given.dtype.hasobject:
        return _writable(name, given)
    return strings(as_bytes(given), given.dtype).reshape(given.shape)


def _writable(name: str, given: Array) -> Array:
    """Decoders may hand out memory that must not change, and code may work in place."""
    return given if given.flags.writeable else given.copy()


def _to_float(name: str, given: Array) -> Array:
    if given.dtype.hasobject:
        raise InvalidInput(f"input {name!r} is BYTES, but the model takes FP32")
    floats = given.astype(np.float32)
    if given.dtype.kind in "iu" and not np.array_equal(floats.astype(np.float64), given):
        raise InvalidInput(
            f"input {name!r} holds whole numbers that FP32 cannot; the model takes it"
        )
    return floats


def _raw(inputs: Tensors) -> dict[str, Any]:
    return {
        name: guest.RawTensor(given.shape, array("f", given.tobytes()))
        for name, given in inputs.items()
    }


def _from_raw(outputs: Mapping[str, Any]) -> Tensors:
    raws = {name: guest.to_raw(name, value) for name, value in outputs.items()}
    return {name: np.array(raw.data, np.float32).reshape(raw.shape) for name, raw in raws.items()}
