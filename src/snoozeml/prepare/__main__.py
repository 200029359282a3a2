"""The prepare process: one job on standard input, one outcome on standard output.

Exit status 0 means that the outcome is complete, be it a plan or an error.
"""

import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from snoozeml.core.plan import Format, PrepareJob, PrepareOutcome
from snoozeml.core.text import spelt
from snoozeml.errors import Internal, OutOfMemory, SnoozeError

_NICENESS: Final = 5
_AUTOGROUP: Final = Path("/proc/self/autogroup")

_MODULES: Final[dict[Format, str]] = {
    "onnx": "snoozeml.prepare.onnx_model",
    "python": "snoozeml.prepare.python_model",
    "safetensors": "snoozeml.prepare.safetensors.model",
    "xgboost": "snoozeml.prepare.trees.tree_model",
    "lightgbm": "snoozeml.prepare.trees.tree_model",
}
"""Where each format's `prepare(job)` is; imported for that format alone."""


def main() -> None:
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # whatever a library prints must not end up in the answer
        job = msgspec.json.decode(sys.stdin.buffer.read(), type=PrepareJob)
        answer.write(msgspec.json.encode(_outcome(job)) + b"\n")


def _outcome(job: PrepareJob) -> PrepareOutcome:
    name = Path(job.model_path).name
    try:
        return _prepare(job)
    except SnoozeError as error:
        failure = error
    except MemoryError:
        failure = OutOfMemory(f"out of memory while preparing {name}")
    except Exception:
        traceback.print_exc()
        failure = Internal(f"preparing {name} failed unexpectedly; the log has more")
    return PrepareOutcome(error=(failure.code, spelt(failure.message)))


def _prepare(job: PrepareJob) -> PrepareOutcome:
    # Both are read when the libraries are loaded, so the import must come after them.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    _give_way()
    try:
        module = import_module(_MODULES[job.format])
    except ImportError as error:
        raise Internal(f"preparing models needs snoozeml[server]: {error}") from error
    outcome: PrepareOutcome = module.prepare(job)
    return outcome


def _give_way() -> None:
    """Let models that are being served go first.

    Linux may share the processor out between sessions first, and then niceness counts among
    processes of one session only; so the session becomes nice, too, if it is ours alone.
    """
    os.nice(_NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # no such sharing here
            _AUTOGROUP.write_text(str(_NICENESS))


if __name__ == "__main__":
    main()
