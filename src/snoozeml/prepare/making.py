"""The way every format takes to a plan: found in the cache, or made into a draft and published."""

import os
from collections.abc import Callable
from pathlib import Path

from snoozeml.core.plan import PLAN_FILE, FileStamp, Plan, PrepareJob, PrepareOutcome
from snoozeml.errors import ModelFailed
from snoozeml.prepare.cache import PlanCache
from snoozeml.prepare.source import Source

Make = Callable[[Path], Plan]
"""Writes a plan's files to a folder and returns the plan, whose graphs are names of some."""


def find_or_make(job: PrepareJob, source: Source, make: Make) -> PrepareOutcome:
    """The plan that a model's content gives.

    Raises:
        ModelFailed: the model's files changed meanwhile.
        OSError: the cache directory cannot be written.
        Whatever `make` raises.
    """
    cache = PlanCache(Path(job.cache_dir), job.cache_limit_bytes)
    key = source.key(f"{job.toolchain} {job.precision}")
    plan = cache.find(key)
    if plan is None:
        with cache.draft() as draft:
            plan = make(draft)
            source.check_unchanged()
            plan = cache.publish(draft, key, plan)
    return PrepareOutcome(plan=plan, stamps=source.stamps, plan_stamps=_stamps_of(plan))


def cannot_use(error: OSError, job: PrepareJob) -> ModelFailed:
    """What the system refused, with the file called by its name alone."""
    path = None if error.filename is None else Path(os.fsdecode(error.filename))
    if path is None or path.is_relative_to(job.cache_dir):  # a disk that is full names no file
        return ModelFailed(f"the cache directory cannot be written: {error.strerror}")
    if isinstance(error, FileNotFoundError):
        return ModelFailed(f"file not found: {path.name}")
    return ModelFailed(f"{path.name} cannot be used: {error.strerror}")


def _stamps_of(plan: Plan) -> tuple[FileStamp, ...]:
    """Stamps of a plan's own files; plan.json is left out, its time changes with use."""
    files = sorted(Path(plan.graph).parent.iterdir())
    return tuple(FileStamp.of(path) for path in files if path.name != PLAN_FILE)
