"""Which plan fits a model file: remembered, or made by a prepare process.

The daemon never reads a model. It knows a file by its stamp, and the index in the cache directory
says which plan was made of the file that had this stamp.
"""

import logging
import os
import platform
import shutil
import time
from contextlib import suppress
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from snoozeml.core.plan import (
    DRAFT_PREFIX,
    INDEX_FOLDER,
    PLAN_FILE,
    FileStamp,
    Origin,
    Plan,
    PrepareJob,
    PrepareOutcome,
)
from snoozeml.errors import from_code
from snoozeml.lifecycle.errands import Fields, run_errand

_log = logging.getLogger("snoozeml.prepare")

_PLAN_VERSION: Final = 6
"""Goes up whenever plans of an earlier version should not be used any more."""

_UNPREPARED_LIFE_S: Final = 3600.0
"""How long an unprepared plan is good for: a disk that was full may have room again."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and under which circumstances it is the right one: the contents of an index file.

    Attributes:
        stamps: of the files that the plan was made from.
        plan_stamps: of those that it consists of.
        made_at: seconds of wall-clock time, because it outlives the machine's uptime.
    """

    toolchain: str
    stamps: tuple[FileStamp, ...]
    plan_stamps: tuple[FileStamp, ...]
    plan: Plan
    made_at: float = msgspec.field(default_factory=time.time)

    def holds(self, toolchain: str) -> bool:
        return (
            self.toolchain == toolchain
            and (self.plan.prepared or time.time() < self.made_at + _UNPREPARED_LIFE_S)
            and self.is_of_present_model()
            and all(stamp.holds() for stamp in self.plan_stamps)
        )

    def is_of_present_model(self) -> bool:
        """Whether the model's own files are what they were."""
        return all(stamp.holds() for stamp in self.stamps)


class PlanStore:
    """The daemon's way to plans.

    Args:
        cache_dir: made when needed; if it cannot be written, models are loaded unprepared.
        cache_limit_bytes: what all plans on disk together may take.
    """

    def __init__(self, cache_dir: Path, cache_limit_bytes: int) -> None:
        self._cache_dir = cache_dir.absolute()
        self._cache_limit_bytes = cache_limit_bytes
        self._toolchain = toolchain()
        self._records: dict[Path, _Record] = {}

    @property
    def scratch(self) -> Path:
        """A folder that stays empty: what confined workers lay their temporary files over."""
        return self._cache_dir / "scratch"

    def known(self, origin: Origin) -> Plan | None:
        """The plan of a model that was prepared before and has not changed since.

        Costs a few `stat` calls, and the first time one small file. Never raises: with a broken
        cache nothing is known.
        """
        index_file = self.index_file(origin)
        record = self._records.get(index_file)
        if record is None or not record.holds(self._toolchain):
            record = _read_record(index_file)
            if record is None or not record.holds(self._toolchain):
                return None
            self._records[index_file] = record
        return record.plan

    def current(self, origin: Origin, plan: Plan | None) -> Plan | None:
        """The plan of a model now, which was `plan` so far.

        It still is if only the plan's files are gone: who has mapped them need not mind.
        """
        record = self._records.get(self.index_file(origin))
        if record is not None and record.plan == plan and record.is_of_present_model():
            return plan
        return self.known(origin)

    async def ensure(self, origin: Origin, model_id: str | None = None) -> Plan:
        """The plan of a model, preparing it first if need be.

        The caller sees to it that this is not done twice at once for one model; it would only be
        wasteful. Cancelling kills the prepare process and waits for its end; it may leave a draft
        in the cache directory, which the next prepare process removes.

        Args:
            model_id: what the log calls the model; None: by the name of its file or folder.

        Raises:
            DiedLoading: the prepare process died of something.
            ModelFailed: the model cannot be served; the message says why.
            OutOfMemory: preparing it took more memory than there was.
            Internal: preparing has a bug, or its libraries are not installed.
        """
        plan = self.known(origin) or await self._prepare(origin, model_id)
        if plan.prepared and plan.format != "python":
            with suppress(OSError):  # its time of use only guides what is removed first
                os.utime(Path(plan.graph).with_name(PLAN_FILE))
        return plan

    def index_file(self, origin: Origin) -> Path:
        """Where is written down which plan fits the model; what else is known of it lies beside."""
        name = ":".join((origin.format, origin.precision, str(origin.path.absolute())))
        key = blake2b(name.encode(errors="surrogateescape"), digest_size=20).hexdigest()
        return self._cache_dir / INDEX_FOLDER / f"{key}.json"

    def forget(self, origin: Origin) -> None:
        """Remove all that is known of a model that is gone: its plan too, unless it is shared.

        Reads the whole index, so it is nothing for the event loop's thread.
        """
        index_file = self.index_file(origin)
        self._records.pop(index_file, None)
        record = _read_record(index_file)
        for file in self._cache_dir.glob(f"{INDEX_FOLDER}/{index_file.stem}.*"):
            file.unlink(missing_ok=True)
        if record is None or not record.plan.prepared or record.plan.format == "python":
            return
        others = map(_read_record, self._cache_dir.glob(f"{INDEX_FOLDER}/[!.]*.json"))
        if not any(other is not None and other.plan.graph == record.plan.graph for other in others):
            _discard(Path(record.plan.graph).parent)

    async def _prepare(self, origin: Origin, model_id: str | None) -> Plan:
        doing = f"preparing {origin.path.name}"
        about: Fields = {"model": model_id or origin.path.name}
        job = self._job(origin)
        outcome = await run_errand("snoozeml.prepare", job, PrepareOutcome, doing, about)
        if outcome.plan is None:
            raise from_code(*(outcome.error or ("internal", "preparing gave no plan and no error")))
        if (why := outcome.plan.unprepared_because) is not None:
            _log.warning("loaded plainly, without a plan: %s", why, extra={"fields": about})
        record = _Record(
            toolchain=self._toolchain,
            stamps=outcome.stamps,
            plan_stamps=outcome.plan_stamps,
            plan=outcome.plan,
        )
        index_file = self.index_file(origin)
        self._records[index_file] = record
        _write_record(index_file, record)
        return outcome.plan

    def _job(self, origin: Origin) -> PrepareJob:
        return PrepareJob(
            model_path=str(origin.path.absolute()),
            format=origin.format,
            precision=origin.precision,
            toolchain=self._toolchain,
            cache_dir=str(self._cache_dir),
            cache_limit_bytes=self._cache_limit_bytes,
        )


def toolchain() -> str:
    """Names all that a plan depends on besides the model, without importing the engine."""
    cpu = blake2b(_cpu_features(), digest_size=8).hexdigest()
    return f"plan{_PLAN_VERSION} {_engine_version()} {platform.machine()} {cpu}"


def _engine_version() -> str:
    # Read from the package itself, because it is distributed under several names.
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return "onnxruntime missing"
    info = Path(spec.origin).parent / "capi" / "build_and_package_info.py"
    return " ".join(info.read_text().split())


def _cpu_features() -> bytes:
    with suppress(OSError), Path("/proc/cpuinfo").open("rb") as lines:
        for line in lines:
            if line.startswith((b"flags", b"Features", b"isa")):
                return line
    return platform.processor().encode()


def _read_record(index_file: Path) -> _Record | None:
    try:
        return msgspec.json.decode(index_file.read_bytes(), type=_Record)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def _discard(folder: Path) -> None:
    """Remove a plan, in one step for all who look."""
    grave = folder.with_name(f"{DRAFT_PREFIX}{os.getpid()}-{folder.name}")
    with suppress(OSError):  # somebody else removes it, too
        folder.rename(grave)
        shutil.rmtree(grave)


def _write_record(index_file: Path, record: _Record) -> None:
    """Readers see the old file or the new one. After a power cut it may be torn, hence unknown."""
    draft = index_file.with_name(f".{os.getpid()}.{index_file.name}")
    try:
        index_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(record))
        draft.replace(index_file)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        _log.warning("cannot remember the plan of a model: %s", error)
