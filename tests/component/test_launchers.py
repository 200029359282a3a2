"""Real processes from both launchers: how they start, end, and are noticed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from snoozeml.core.plan import Plan, WorkerSpec
from snoozeml.core.tensors import Signature
from snoozeml.errors import ModelFailed
from snoozeml.lifecycle.process import ExecLauncher, Launcher, OutputTail, describe_exit
from snoozeml.lifecycle.spare import SpareLauncher
from snoozeml.lifecycle.worker import Worker

LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "exec": ExecLauncher,
    "spare": lambda: SpareLauncher(60.0),
}

FORK_LIMIT_S = 2.0
"""How long a spare may take over a fork."""

FOUND_OUT_S = FORK_LIMIT_S + 3.0
"""How long a worker may take that was first asked of a spare that hangs."""


@asynccontextmanager
async def closing(launcher: Launcher) -> AsyncIterator[Launcher]:
    try:
        yield launcher
    finally:
        await launcher.close()


async def within(seconds: float, awaitable: Awaitable[int | None]) -> int | None:
    async with asyncio.timeout(seconds):
        return await awaitable


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  the kernel sends no event for what is awaited here
            await asyncio.sleep(0.005)


async def gone(pid: int) -> None:
    await eventually(lambda: not is_alive(pid))


@pytest.mark.parametrize("make", LAUNCHERS.values(), ids=LAUNCHERS.keys())
def test_process_leads_its_own_group_and_its_end_is_reported(make: Callable[[], Launcher]) -> None:
    async def scene() -> None:
        async with closing(make()) as launcher:
            process = await launcher.launch("iris")
            # A fork becomes a leader a moment after its birth.
            await eventually(lambda: os.getpgid(process.pid) == process.pid)
            os.kill(process.pid, signal.SIGKILL)
            assert await within(10, process.wait()) == -signal.SIGKILL
            process.sock.close()

    asyncio.run(scene())


@pytest.mark.parametrize("make", LAUNCHERS.values(), ids=LAUNCHERS.keys())
def test_process_leaves_when_the_daemon_lets_go_of_its_socket(make: Callable[[], Launcher]) -> None:
    async def scene() -> None:
        async with closing(make()) as launcher:
            process = await launcher.launch("iris")
            process.sock.close()
            assert await within(10, process.wait()) == 0

    asyncio.run(scene())


@pytest.mark.parametrize("make", LAUNCHERS.values(), ids=LAUNCHERS.keys())
def test_worker_that_cannot_load_says_why_and_is_gone(make: Callable[[], Launcher]) -> None:
    spec = WorkerSpec(
        model_id="missing",
        plan=Plan(
            format="onnx",
            graph="/nowhere/model.onnx",
            prepared=True,
            signature=Signature((), ()),
            batching="alone",
            weights_bytes=0,
        ),
        device="cpu",
        max_batch_size=1,
        max_batch_tokens=1,
        max_batch_delay_s=0.0,
        batching="off",
        threads=1,
    )

    async def released(pid: int) -> None: ...

    async def fail(launcher: Launcher) -> None:
        with pytest.raises(ModelFailed):
            await Worker.start(launcher, spec, lambda frames: None, released)
        await asyncio.sleep(0.01)  # transports close in the next turns of the loop

    async def scene() -> None:
        async with closing(make()) as launcher:
            await fail(launcher)  # the first one leaves a spare, which stays
            before = count_descriptors()
            for _ in range(3):
                await fail(launcher)
            assert count_descriptors() == before

    asyncio.run(scene())


def test_spare_has_one_thread_and_forks_share_its_parentage() -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            first, second = await launcher.launch("a"), await launcher.launch("b")
            spare = parent_of(first.pid)
            assert parent_of(second.pid) == spare != os.getpid()
            assert len(list(Path(f"/proc/{spare}/task").iterdir())) == 1
            # What takes long to import is there before the fork, not after it.
            assert "onnxruntime_pybind11_state" in Path(f"/proc/{spare}/maps").read_text()
            for process in (first, second):
                process.sock.close()
                await within(10, process.wait())

    asyncio.run(scene())


def test_spare_leaves_when_nothing_has_run_for_its_linger_time() -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(0.05)) as launcher:
            process = await launcher.launch("iris")
            spare = parent_of(process.pid)
            await asyncio.sleep(0.2)
            assert is_alive(spare), "the spare left while its worker ran"
            process.sock.close()
            await within(10, process.wait())
            await gone(spare)
            again = await launcher.launch("iris")
            assert parent_of(again.pid) != spare
            again.sock.close()
            await within(10, again.wait())

    asyncio.run(scene())


def test_spare_that_dies_leaves_its_workers_watched_and_is_replaced() -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            orphan = await launcher.launch("iris")
            spare = parent_of(orphan.pid)
            os.kill(spare, signal.SIGKILL)
            await gone(spare)
            others = [await launcher.launch("iris") for _ in range(2)]  # the first may meet its end
            assert parent_of(others[-1].pid) not in (spare, os.getpid())
            os.kill(orphan.pid, signal.SIGKILL)
            assert await within(10, orphan.wait()) is None
            for process in (orphan, *others):
                process.sock.close()
            for process in others:
                await within(10, process.wait())

    asyncio.run(scene())


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


async def spare_of(launcher: Launcher) -> int:
    """The process that the launcher forks from, once it has shown that it works."""
    process = await launcher.launch("first")
    process.sock.close()
    await within(10, process.wait())
    (spare,) = children("snoozeml.worker.spare")
    return spare


def children(module: str) -> list[int]:
    """Our own, that run this module."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [
        int(pid)
        for pid in pids
        if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]


def test_spare_that_hangs_is_killed_and_its_work_done_by_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            spare = await spare_of(launcher)
            stop(spare)
            async with asyncio.timeout(FOUND_OUT_S):
                processes = await asyncio.gather(*map(launcher.launch, "abc"))
            assert {parent_of(process.pid) for process in processes} == {os.getpid()}
            await gone(spare)
            processes.append(await launcher.launch("d"))
            assert parent_of(processes[-1].pid) not in (spare, os.getpid()), "there is another one"
            for process in processes:
                process.sock.close()
                await within(10, process.wait())

    asyncio.run(scene())
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert record.message == "spare lost"
    assert "did not fork within" in vars(record)["fields"]["why"]


def test_spare_that_hangs_is_found_out_though_nobody_waits_for_it() -> None:
    """A load may have less time than it takes to tell that the spare hangs."""

    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            spare = await spare_of(launcher)
            stop(spare)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await launcher.launch("hasty")
            await gone(spare)

    asyncio.run(scene())


def test_spare_that_dies_before_it_has_answered_costs_no_worker() -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            spare = await spare_of(launcher)
            stop(spare)
            launch = asyncio.create_task(launcher.launch("iris"))
            await asyncio.sleep(0.1)
            os.kill(spare, signal.SIGKILL)
            process = await launch
            assert parent_of(process.pid) == os.getpid()
            process.sock.close()
            await within(10, process.wait())

    asyncio.run(scene())


def test_spare_that_never_works_is_not_replaced_again_and_again() -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            await launcher.warm_up()
            (spare,) = children("snoozeml.worker.spare")
            os.kill(spare, signal.SIGKILL)
            await gone(spare)
            process = await launcher.launch("iris")
            assert children("snoozeml.worker.spare") == []
            process.sock.close()
            await within(10, process.wait())

    asyncio.run(scene())


def test_spare_that_hangs_is_not_waited_for_in_the_end() -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            spare = await spare_of(launcher)
            stop(spare)
            started = time.monotonic()
            await launcher.close()
            assert time.monotonic() - started < 1
            assert not is_alive(spare)

    asyncio.run(scene())


def test_spare_has_not_hung_while_the_daemon_itself_was_late() -> None:
    async def scene() -> None:
        async with closing(SpareLauncher(60.0)) as launcher:
            spare = await spare_of(launcher)
            ours, theirs = socket.socketpair()

            def be_late() -> None:
                asyncio.get_running_loop().remove_reader(ours)
                os.kill(spare, signal.SIGCONT)
                time.sleep(FORK_LIMIT_S)

            stop(spare)
            launch = asyncio.create_task(launcher.launch("iris"))
            await asyncio.sleep(0.1)
            asyncio.get_running_loop().add_reader(ours, be_late)
            theirs.send(b"x")
            process = await launch
            parent = parent_of(process.pid)
            for sock in (process.sock, ours, theirs):
                sock.close()
            await within(10, process.wait())
            assert parent == spare

    uvloop.run(scene())  # it looks at its clock between two looks at its sockets


def test_what_a_process_prints_reaches_the_log_and_its_last_lines_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = "for i in range(30): print('line', i)\nprint('x' * 100_000, end='')"

    async def scene() -> None:
        output, write_fd = await OutputTail.attach("iris")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdout=write_fd, stderr=write_fd
        )
        os.close(write_fd)
        await within(10, process.wait())
        await eventually(lambda: bool(output.lines) and output.lines[-1].endswith("x"))
        assert "line 29" in output.lines
        assert "line 0" not in output.lines
        assert all(len(line) <= 4096 for line in output.lines)

    with caplog.at_level("INFO", logger="snoozeml.worker"):
        asyncio.run(scene())
    assert "line 0" in caplog.messages


def test_no_process_outlives_a_daemon_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from snoozeml.lifecycle.spare import SpareLauncher\n"
        "async def main():\n"
        "    process = await SpareLauncher(60.0).launch('iris')\n"
        "    print(process.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    daemon = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    worker = int(daemon.stdout.readline())
    spare = parent_of(worker)
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()
    deadline = time.monotonic() + 10
    while (is_alive(worker) or is_alive(spare)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(worker)
    assert not is_alive(spare)


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "status 0"), (3, "status 3"), (-9, "SIGKILL"), (-11, "SIGSEGV"), (None, "nobody saw")],
)
def test_exit_is_described_in_words(status: int | None, words: str) -> None:
    assert words in describe_exit(status)
