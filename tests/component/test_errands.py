"""Short-lived processes that die before anybody has spoken to them."""

import asyncio
from asyncio.subprocess import Process
from typing import Any

import msgspec
import pytest
import uvloop

from snoozeml.lifecycle.errands import run_errand
from snoozeml.lifecycle.worker import DiedLoading


class Job(msgspec.Struct):
    text: str = "hello"


def test_a_process_that_is_dead_before_it_has_its_job_has_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = asyncio.create_subprocess_exec

    async def started_and_dead(*arguments: str, **options: Any) -> Process:
        process = await start(*arguments, **options)
        process.kill()
        await process.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started_and_dead)
    errand = run_errand("snoozeml.prepare", Job(), Job, "preparing echo", {})
    with pytest.raises(DiedLoading, match="preparing echo ended by SIGKILL"):
        uvloop.run(errand)
