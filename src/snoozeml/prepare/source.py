"""A model as it lies on disk: read once, checked, and recognised by its content."""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto

from snoozeml.core.plan import FileStamp
from snoozeml.errors import ModelFailed
from snoozeml.prepare.external_data import external_files
from snoozeml.prepare.tables import table_sizes


@dataclass(frozen=True)
class Source:
    """A model's files, and what they hold.

    Attributes:
        path: what the model is known by.
        stamps: of all files that make up the model; taken before any of them was read.
        content: digest of all these files.
        unranked_inputs: names of an ONNX graph's inputs that do not say how many axes they have.
        table_sizes: of an ONNX graph's inputs that are indices into a table, by name.
    """

    path: Path
    stamps: tuple[FileStamp, ...]
    content: bytes
    unranked_inputs: frozenset[str] = frozenset()
    table_sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, files: Sequence[Path]) -> "Source":
        """Stamp and digest a model that consists of `files`.

        Raises:
            ModelFailed: one is not a regular file.
            OSError: one cannot be read.
        """
        for file in files:
            if not stat.S_ISREG(file.stat().st_mode):  # opening a pipe could wait for ever
                raise ModelFailed(f"{file.name} is not a regular file")
        stamps = tuple(map(FileStamp.of, files))
        return cls(path, stamps, _digest(b"", files))

    @property
    def size_bytes(self) -> int:
        return sum(stamp.size_bytes for stamp in self.stamps)

    def key(self, toolchain: str) -> str:
        """Name of the plan that this content gives with this toolchain; fit for a folder."""
        digest = blake2b(self.content, digest_size=20)
        digest.update(toolchain.encode())
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raises ModelFailed: a file was written to since it was stamped, so what was made of it is
        not what its digest says."""
        for stamp in self.stamps:
            if not stamp.holds():
                raise ModelFailed(
                    f"{Path(stamp.path).name} changed while it was being prepared; try again"
                )


def read_source(path: Path) -> Source:
    """Read and check an ONNX model, whose external data must lie where it may be.

    Raises:
        ModelFailed: the file is missing, unreadable or not ONNX, or its external data is not where
            it may be.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelFailed(f"{path.name} is not a regular file")
        return _read(path)
    except FileNotFoundError:
        raise ModelFailed(f"model file not found: {path.name}") from None
    except OSError as error:
        raise ModelFailed(f"{path.name} cannot be read: {error.strerror}") from error


def _read(path: Path) -> Source:
    stamp = FileStamp.of(path)
    content = path.read_bytes()
    model = _parse(path, content)
    data_files = external_files(model, path.parent)
    data_stamps = [FileStamp.of(file) for file in data_files]
    return Source(
        path=path,
        stamps=(stamp, *data_stamps),
        content=_digest(content, data_files),
        unranked_inputs=frozenset(
            value.name
            for value in model.graph.input
            if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
        ),
        table_sizes=table_sizes(model),
    )


def _parse(path: Path, content: bytes) -> ModelProto:
    # An empty file is a valid message with nothing in it, hence the second condition.
    try:
        model: ModelProto = ModelProto.FromString(content)
    except DecodeError:
        model = ModelProto()
    if not model.HasField("graph"):
        raise ModelFailed(f"{path.name} is not an ONNX model, or only part of one")
    return model


def _digest(model: bytes, data_files: Sequence[Path]) -> bytes:
    digest = blake2b(model)
    for file in data_files:
        with file.open("rb") as data:
            digest.update(file_digest(data, blake2b).digest())
    return digest.digest()
