"""Confining the process that runs the code of a model which nobody vouches for.

Nothing here needs privileges. Each part can only take away, and nothing that is started later gets
anything back:

    privileges   no new ones by running programs, none of those there are; limits on resources
    namespaces   a temporary folder of its own, in memory, that ends with it
    landlock     files: libraries and the model's folder can be read, nothing else
    seccomp      no sockets, no other process's memory, signals or limits, no new processes

The kernel applies some of this to one thread only, so it happens while there is no other.
"""

import os
from pathlib import Path
from typing import Final

from snoozeml.core.plan import Sandbox
from snoozeml.errors import ModelFailed
from snoozeml.worker.sandbox import landlock, namespaces, privileges, seccomp
from snoozeml.worker.sandbox.views import readable, writable

_TASKS: Final = Path("/proc/self/task")


def confine(sandbox: Sandbox, folder: Path, device: str) -> tuple[str, ...]:
    """Confine this process, and what it starts, for as long as they live.

    Whoever then runs the model's code, this process or one that it starts, calls `be_alone` first.

    Args:
        folder: of the model.
        device: whose device files it may use.

    Returns:
        what the system lacks, in words.

    Raises:
        ModelFailed: it lacks something, and the sandbox asks for all.
    """
    missing = (*landlock.missing(), *seccomp.missing())
    if missing and sandbox.required:
        raise ModelFailed(
            f"sandbox = true, but this system lacks {' and '.join(missing)}; "
            'sandbox = "best-effort" runs the model with what there is'
        )
    if len(list(_TASKS.iterdir())) != 1:
        raise ModelFailed("the model cannot be confined: the worker has threads already")
    scratch = Path(sandbox.scratch)
    privileges.limit_resources(sandbox.memory_bytes)
    without_scratch = namespaces.enter(scratch)
    if without_scratch is None:
        privileges.limit_threads()
    _point_to(scratch)
    privileges.renounce_new()
    if not landlock.missing():
        kept = [] if without_scratch else [scratch]
        landlock.restrict(readable(folder, device), writable(device), kept)
    privileges.drop()
    if not seccomp.missing():
        seccomp.install(seccomp.SHARED)
    return missing if without_scratch is None else (*missing, without_scratch)


def be_alone() -> None:
    """From now on, start no process, and send no other one signals."""
    if not seccomp.missing():
        seccomp.install(seccomp.alone(os.getpid()))


def _point_to(scratch: Path) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        os.environ[name] = str(scratch)
