"""A plan: what prepare made of a model, and all that a worker needs to load it."""

from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from snoozeml.core.manifest import Manifest
from snoozeml.core.tensors import Batching, Signature

Format = Literal["onnx", "safetensors", "xgboost", "lightgbm", "python"]

PLANS_FOLDER: Final = "plans"
"""Folder in the cache directory with one folder per plan, named after content and toolchain."""

DRAFT_PREFIX: Final = ".draft-"
"""What folders are called beside the plans that are being written or removed."""

Precision = Literal["fp32", "int8"]

INDEX_FOLDER: Final = "index"
"""Folder in the cache directory with one file per model path, naming the plan that fits it."""

PLAN_FILE: Final = "plan.json"
"""File in a plan's folder that describes it; its modification time is the time of last use."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is loaded, fed and read.

    Attributes:
        graph: absolute path of the graph that the engine opens; of the model's folder if it is
            Python code.
        weights_folder: absolute path of the folder that the graph's external weights are relative
            to; None: the graph's own.
        source: absolute path of the graph for every other device than the CPU, which `graph` was
            optimised for; None: `graph` suits them all.
        prepared: the graph is optimised already and its weights lie beside it, ready to be mapped;
            true of Python code, which is run as it is. False: preparing failed for the reason in
            `unprepared_because`, and the engine loads the original file plainly.
        row_s: what one row of made-up data took on one thread when the plan was made, in seconds;
            None when the model refused such data.
        one_thread: answers depend on the number of threads that the engine uses, and are right
            with one.
        weights_bytes: size of what loading will map or read, a first guess at the model's memory.
        packed_graph: absolute path of a graph that runs faster and takes longer to open: its
            weights lie packed beside it as well. None: there is nothing to gain.
        packing_bytes: what opening that takes beside the weights, for a moment.
        manifest: of Python code only.
    """

    format: Format
    graph: str
    weights_folder: str | None = None
    source: str | None = None
    prepared: bool
    unprepared_because: str | None = None
    signature: Signature
    batching: Batching
    row_s: float | None = None
    weights_bytes: int
    one_thread: bool = False
    manifest: Manifest | None = None
    packed_graph: str | None = None
    packing_bytes: int = 0

    def labelled(self, labels: tuple[str, ...]) -> Self:
        """With these names of classes instead of its own, if there are any."""
        if not labels:
            return self
        return replace(self, signature=replace(self.signature, labels=labels))


class Origin(NamedTuple):
    """What a plan is made from.

    Attributes:
        path: of the model's file or folder.
        precision: in which linear layers compute; formats without such layers know only fp32.
    """

    path: Path
    format: Format
    precision: Precision = "fp32"


class FileStamp(msgspec.Struct, frozen=True):
    """What a file looked like from outside: equal stamps mean equal content, without reading it.

    Attributes:
        size_bytes: -1 when there was no such file.
    """

    path: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Take a file's stamp; a symbolic link is followed. Raises OSError."""
        stat = path.stat()
        return cls(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    @classmethod
    def of_nothing(cls, path: Path) -> Self:
        """The stamp of a file that is not there, and may come."""
        return cls(str(path), -1, 0, 0, 0)

    def holds(self) -> bool:
        """Whether the file is still the one that was stamped, or still not there."""
        try:
            return FileStamp.of(Path(self.path)) == self
        except FileNotFoundError:
            return self.size_bytes == -1
        except OSError:
            return False


class PrepareJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon asks of a prepare process, as JSON on its standard input.

    Attributes:
        model_path, cache_dir: absolute.
        toolchain: names engine and processor; a plan serves only jobs with the same name.
        cache_limit_bytes: what all plans together may take; the one just made is kept in any case.
    """

    model_path: str
    format: Format
    precision: Precision = "fp32"
    toolchain: str
    cache_dir: str
    cache_limit_bytes: int


class PrepareOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A prepare process's answer, as one line of JSON on its standard output.

    Exactly one of `plan` and `error` is set; `error` is (code, safe message).

    Attributes:
        stamps: of the files that the plan was made from; for as long as they hold, it is the same
            model.
        plan_stamps: of those that the plan consists of; none of what is loaded as it is.
    """

    plan: Plan | None = None
    stamps: tuple[FileStamp, ...] = ()
    plan_stamps: tuple[FileStamp, ...] = ()
    error: tuple[str, str] | None = None


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is confined that runs a model's own code.

    Attributes:
        required: where the system lacks a part of it, the model is not loaded.
        scratch: absolute path of a folder that stays empty; the worker lays one of its own over it.
        memory_bytes: what the worker may take.
    """

    required: bool
    scratch: str
    memory_bytes: int


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a fresh worker is told: the body of its first frame.

    Attributes:
        max_batch_size: rows.
        max_batch_tokens: rows times the longest of them, where rows have a length.
        max_batch_delay_s: the longest that a request may wait for company.
        threads: threads that the engine may use inside one run.
        sandbox: None: it is not confined.
        pack_after_runs, pack_after_s: the model has proven used after so many runs, or by a run so
            long after the first; whichever comes first.
    """

    model_id: str
    plan: Plan
    device: str
    max_batch_size: int
    max_batch_tokens: int
    max_batch_delay_s: float
    batching: Literal["adaptive", "fixed", "off"]
    threads: int
    sandbox: Sandbox | None = None
    pack_after_runs: int = 32
    pack_after_s: float = 3.0


class WorkerReady(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report that its model is loaded.

    Attributes:
        lacking: parts of its sandbox that the system does not have, in words.
    """

    load_s: float
    device: str
    lacking: tuple[str, ...] = ()


class WorkerFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure on its way from a worker: never pickled, the traceback for the log only."""

    code: str
    message: str
    traceback: str | None = None
