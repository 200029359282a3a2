"""Short-lived processes of ours: one job on standard input, one outcome on standard output.

What they read was written by others, so they cannot take the daemon with them.
"""

import asyncio
import logging
import os
import signal
import sys
from collections import deque
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from snoozeml.lifecycle.printed import printed
from snoozeml.lifecycle.worker import DiedLoading

_log = logging.getLogger("snoozeml.prepare")

_Outcome = TypeVar("_Outcome")

Fields = dict[str, object]
"""What a line in the log tells beside its text."""

_LAST_LINES: Final = 20  # of a dead process's standard error, for the log


async def run_errand(
    module: str, job: msgspec.Struct, outcome: type[_Outcome], doing: str, fields: Fields
) -> _Outcome:
    """Run one job in a process group of its own; nothing of it is left on return.

    Args:
        module: what the process runs.
        outcome: what its answer is read as.
        doing: what it does, for messages, such as `preparing iris.onnx`.
        fields: what it is about, for what it prints into the log.

    Raises:
        DiedLoading: it ended without an answer.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),  # -P: no modules from the working folder
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"ORT_DISABLE_TELEMETRY": "1"},
        start_new_session=True,
    )
    try:
        answer, last_lines = await _converse(process, msgspec.json.encode(job), fields)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    try:
        return msgspec.json.decode(answer, type=outcome)
    except msgspec.MsgspecError:
        ending = _ending(process.returncode)
        text = "\n".join(last_lines)
        _log.error("%s %s; last lines: %s", doing, ending, text, extra={"fields": fields})
        raise DiedLoading(f"{doing} {ending}", process.returncode) from None


async def _converse(
    process: asyncio.subprocess.Process, job: bytes, fields: Fields
) -> tuple[bytes, deque[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.TaskGroup() as tasks:
        last_lines = tasks.create_task(_drain_into_log(process.stderr, fields))
        if not process.stdin.is_closing():  # it may be dead already; uvloop would raise
            process.stdin.write(job)
            process.stdin.close()
        answer = await process.stdout.read()
    await process.wait()
    return answer, last_lines.result()


async def _drain_into_log(stderr: asyncio.StreamReader, fields: Fields) -> deque[str]:
    """Log what it prints: these processes speak only when something is out of the ordinary."""
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    while chunk := await stderr.read(1 << 16):
        for line in map(printed, chunk.splitlines()):
            _log.warning("%s", line, extra={"fields": fields})
            last_lines.append(line)
    return last_lines


def _ending(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"ended by {signal.Signals(-returncode).name}"
    return f"ended without an answer, exit status {returncode}"
