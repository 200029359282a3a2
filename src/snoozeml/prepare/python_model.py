"""Turning a folder of Python code into a plan, without running any of it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from snoozeml.core.manifest import MANIFEST_FILE, read_manifest
from snoozeml.core.plan import FileStamp, Plan, PrepareJob, PrepareOutcome
from snoozeml.core.text import is_text
from snoozeml.errors import ModelFailed

_ENVIRONMENT_FILE: Final = "pyvenv.cfg"  # lies in every virtual environment

_WATCHED: Final = 256
"""Files whose change makes another model; each costs a `stat` whenever the plan is looked up."""


def prepare(job: PrepareJob) -> PrepareOutcome:
    """Read the manifest and look at the files.

    The plan goes with the model's code and weights as they are: if one of the first 256 files
    changes (code counts first), it is another model.

    Raises:
        ModelFailed: the folder or the manifest is not as it must be.
    """
    folder = Path(job.model_path)
    try:
        files = sorted(_files(folder), key=lambda file: (file.suffix != ".py", file))
        stamps = [FileStamp.of(file) for file in files]
    except OSError as error:
        raise ModelFailed(
            f"{Path(error.filename).name} cannot be read: {error.strerror}"
        ) from error
    plan = plan_of(folder, sum(stamp.size_bytes for stamp in stamps))
    return PrepareOutcome(plan=plan, stamps=(_manifest_stamp(folder), *stamps[:_WATCHED]))


def plan_of(folder: Path, weights_bytes: int) -> Plan:
    """The plan of a Python model.

    Raises:
        ModelFailed: the manifest is wrong, or names what is not there.
    """
    manifest = read_manifest(folder)
    manifest.interpreter(folder, sys.executable)
    signature, batching = manifest.describe()
    return Plan(
        format="python",
        graph=str(folder),
        prepared=True,
        signature=signature,
        batching=batching,
        weights_bytes=weights_bytes,
        manifest=manifest,
    )


def _manifest_stamp(folder: Path) -> FileStamp:
    """A manifest that is not there may be written later, and then counts."""
    path = folder / MANIFEST_FILE
    return FileStamp.of(path) if path.exists() else FileStamp.of_nothing(path)


def _files(folder: Path) -> Iterator[Path]:
    """What belongs to the model: no hidden files, no bytecode, no virtual environments, and
    nothing whose name could not be written down."""
    for path, folders, files in os.walk(folder):
        here = Path(path)
        folders[:] = [name for name in folders if _is_part(here / name)]
        yield from (here / name for name in files if _is_seen(name) and (here / name).is_file())


def _is_part(folder: Path) -> bool:
    if not _is_seen(folder.name) or folder.name == "__pycache__":
        return False
    return not (folder / _ENVIRONMENT_FILE).exists()


def _is_seen(name: str) -> bool:
    return not name.startswith(".") and is_text(name)
