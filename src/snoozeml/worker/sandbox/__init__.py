"""Confining the code of a model that nobody vouches for.

The code runs in a process of its own beside the worker, so that it holds neither the worker's
memory nor its line to the daemon. Nothing here needs privileges. Each part can only take away, and
nothing that is started later gets anything back:

    privileges   no new ones by running programs, none of those there are; limits on resources
    namespaces   a temporary folder of its own, in memory, that ends with it
    landlock     files: libraries and the model's folder can be read, nothing else
    seccomp      no sockets, no other process's memory, signals or limits, no new processes

The worker does the first two for both, since the kernel wants that before there is a second thread;
the process does the others, before it becomes the interpreter.
"""

import os
import site
from pathlib import Path
from typing import Final

from snoozeml.core.plan import Sandbox
from snoozeml.errors import ModelFailed
from snoozeml.worker.sandbox import landlock, namespaces, privileges, seccomp
from snoozeml.worker.sandbox.views import readable, writable

_TASKS: Final = Path("/proc/self/task")


def confine(sandbox: Sandbox) -> tuple[str, ...]:
    """Confine the worker, as far as it can be that has to start another process.

    Returns:
        what the system lacks, in words.

    Raises:
        ModelFailed: it lacks something, and the sandbox asks for all.
    """
    lacking = (*landlock.missing(), *seccomp.missing())
    if lacking and sandbox.required:
        raise ModelFailed(
            f"sandbox = true, but this system lacks {' and '.join(lacking)}; "
            'sandbox = "best-effort" runs the model with what there is'
        )
    if len(list(_TASKS.iterdir())) != 1:
        raise ModelFailed("the model cannot be confined: its worker has threads already")
    scratch = Path(sandbox.scratch)
    privileges.limit_resources(sandbox.memory_bytes)
    no_scratch = namespaces.enter(scratch)
    if no_scratch is None:
        privileges.limit_threads()
    privileges.renounce_new()
    privileges.drop()
    _point_to(scratch)
    return lacking if no_scratch is None else (*lacking, no_scratch)


def lock_in(sandbox: Sandbox, folder: Path, device: str) -> None:
    """Confine this process, which is to run the model's code, and whatever it becomes.

    Args:
        folder: of the model.
        device: whose device files it may use.
    """
    scratch = Path(sandbox.scratch)
    kept = [scratch] if scratch.is_mount() else []  # else it is not its own
    if not landlock.missing():
        landlock.restrict(readable(folder, device), writable(device), kept)
    if not seccomp.missing():
        seccomp.install(seccomp.rules(os.getpid()))


def _point_to(scratch: Path) -> None:
    os.environ["PYTHONUSERBASE"] = site.getuserbase()  # which is below the home folder as it was
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        os.environ[name] = str(scratch)
