"""`snooze_model.json`: how a Python model says that it wants to be run."""

import os
import shutil
from collections import Counter
from pathlib import Path, PurePath
from typing import Annotated, Final, Literal

import msgspec

from snoozeml.core.tensors import DYNAMIC, Batching, Datatype, Dim, Signature, TensorSpec
from snoozeml.errors import ModelFailed

MANIFEST_FILE: Final = "snooze_model.json"
ENTRYPOINT: Final = "snooze_model.py"

_Name = Annotated[str, msgspec.Meta(min_length=1)]


class DeclaredTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input or output; a dimension that may vary is -1, null, or a name of its own."""

    name: _Name
    datatype: Datatype
    shape: tuple[Dim, ...]

    def spec(self, batch_axis: int | None) -> TensorSpec:
        shape = tuple(None if dim == DYNAMIC else dim for dim in self.shape)
        return TensorSpec(self.name, self.datatype, shape, batch_axis)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file says.

    Attributes:
        entrypoint: the file with the class, relative to the folder.
        python: the interpreter to run it: absolute, relative to the folder, or a command's name;
            None: ours.
        env: variables for its process.
        bytes_as: what the elements of BYTES are in `predict`; text is all that `str` takes.
        batching: whether requests may be merged along axis 0.
        inputs, outputs: None: whatever requests bring and `predict` gives.
    """

    entrypoint: _Name = ENTRYPOINT
    class_name: _Name = msgspec.field(name="class", default="Model")
    tensor_format: Literal["numpy", "raw"] = "numpy"
    python: _Name | None = None
    env: dict[_Name, str] = {}
    bytes_as: Literal["str", "bytes"] = "str"
    batching: bool | Literal["on", "off"] = True
    inputs: tuple[DeclaredTensor, ...] | None = None
    outputs: tuple[DeclaredTensor, ...] | None = None

    @property
    def runs_apart(self) -> bool:
        """Whether the model needs a process of its own beside the worker's."""
        return self.python is not None or bool(self.env)

    def interpreter(self, folder: Path, own: str) -> str:
        """The interpreter's path; `own` is that of this process.

        Links are kept: a virtual environment is known by the link through which it is entered.

        Raises:
            ModelFailed: there is no such program.
        """
        if self.python is None:
            return own
        is_name = os.sep not in self.python
        path = shutil.which(self.python) if is_name else str(folder / self.python)
        if path is None or not (Path(path).is_file() and os.access(path, os.X_OK)):
            where = "on the PATH" if is_name else "from the model's folder"
            raise _wrong(f"python: {self.python!r} is no program that can be run {where}")
        return path

    def describe(self) -> tuple[Signature, Batching]:
        """Signature of the model, and how it may be fed."""
        declared = (*(self.inputs or ()), *(self.outputs or ()))
        has_rows = all(t.shape and not _is_fixed(t.shape[0]) for t in declared)
        merges = self.batching in (True, "on") and has_rows
        axis = 0 if merges else None
        signature = Signature(
            inputs=tuple(tensor.spec(axis) for tensor in self.inputs or ()),
            outputs=tuple(tensor.spec(axis) for tensor in self.outputs or ()),
            open_inputs=self.inputs is None,
            open_outputs=self.outputs is None,
            takes_any_bytes=self.bytes_as == "bytes",
        )
        return signature, "merge" if merges else "alone"


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a Python model; without one everything is as usual.

    Raises:
        ModelFailed: it cannot be read, or says what cannot be; names the key.
    """
    file = folder / MANIFEST_FILE
    try:
        if file.exists() and not file.is_file():  # opening a pipe would wait for ever
            raise _wrong("is not a regular file")
        content = file.read_bytes()
    except FileNotFoundError:
        content = b"{}"
    except OSError as error:
        raise _wrong(f"cannot be read: {error.strerror}") from error
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.ValidationError as error:
        keys = ", ".join(field.encode_name for field in msgspec.structs.fields(Manifest))
        raise _wrong(f"{error}; its keys are {keys}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise _wrong(f"is not JSON: {error}") from error
    _check(manifest, folder)
    return manifest


def _check(manifest: Manifest, folder: Path) -> None:
    entrypoint = PurePath(manifest.entrypoint)
    if entrypoint.is_absolute() or ".." in entrypoint.parts:
        raise _wrong(f"entrypoint: {manifest.entrypoint!r} must lie in the model's folder")
    if not os.path.isfile(folder / entrypoint):  # noqa: PTH113  any text may stand there
        raise ModelFailed(
            f"there is no {manifest.entrypoint} in the model's folder; "
            f"write it, or name the file with the class as entrypoint in {MANIFEST_FILE}"
        )
    for name, value in manifest.env.items():
        if "=" in name or "\0" in name + value:
            raise _wrong(
                f"env: {name!r} must have neither '=' nor NUL in it, and no NUL in its value"
            )
    for key, tensors in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        _check_tensors(key, tensors, manifest.tensor_format)


def _check_tensors(
    key: str, tensors: tuple[DeclaredTensor, ...] | None, tensor_format: str
) -> None:
    if tensors == ():
        raise _wrong(f"{key}: is empty; leave it out if any may come")
    for name, count in Counter(tensor.name for tensor in tensors or ()).items():
        if count > 1:
            raise _wrong(f"{key}: {name!r} is there {count} times")
    for tensor in tensors or ():
        if any(isinstance(dim, int) and dim < DYNAMIC for dim in tensor.shape):
            raise _wrong(f"{key}: {tensor.name!r} has a dimension below -1")
        if tensor.datatype == "BF16":
            raise _wrong(f"{key}: {tensor.name!r} is BF16, which numpy has not; use FP32")
        if tensor_format == "raw" and tensor.datatype != "FP32":
            raise _wrong(
                f"{key}: {tensor.name!r} is {tensor.datatype}, but raw tensors are FP32; "
                'use "tensor_format": "numpy" for others'
            )


def _is_fixed(dim: Dim) -> bool:
    return isinstance(dim, int) and dim != DYNAMIC


def _wrong(what: str) -> ModelFailed:
    return ModelFailed(f"{MANIFEST_FILE}: {what}")
